"""Our declarations of NVML are those of NVML's own header, and every name of it can be found."""

import re
import subprocess
from pathlib import Path

import pytest

from simgpu import nvmlnames
from simgpu.node import LIBRARIES

ROOT = Path(__file__).parents[2]
ABI = ROOT / "shim" / "abi"

# Constants that NVML has only as macros with other names, and what they are called there.
OTHER_NAMES = {
    "NVML_EVENT_SINGLE_BIT_ECC_ERROR": "nvmlEventTypeSingleBitEccError",
    "NVML_EVENT_DOUBLE_BIT_ECC_ERROR": "nvmlEventTypeDoubleBitEccError",
    "NVML_EVENT_PSTATE": "nvmlEventTypePState",
    "NVML_EVENT_XID_CRITICAL_ERROR": "nvmlEventTypeXidCriticalError",
    "NVML_EVENT_CLOCK": "nvmlEventTypeClock",
    "NVML_CLOCKS_EVENT_REASON_GPU_IDLE": "nvmlClocksEventReasonGpuIdle",
    "NVML_CLOCKS_EVENT_REASON_SW_POWER_CAP": "nvmlClocksEventReasonSwPowerCap",
}

# What the simulated library calls its fields, and what NVML calls them after NVML_FI_DEV_.
FIELDS = {
    "ECC_CURRENT": "ECC_CURRENT",
    "ECC_PENDING": "ECC_PENDING",
    "ECC_DOUBLE_VOLATILE_TOTAL": "ECC_DBE_VOL_TOTAL",
    "ECC_DOUBLE_AGGREGATE_TOTAL": "ECC_DBE_AGG_TOTAL",
    "ECC_DOUBLE_VOLATILE_DEVICE": "ECC_DBE_VOL_DEV",
    "ECC_DOUBLE_AGGREGATE_DEVICE": "ECC_DBE_AGG_DEV",
    "ECC_LAST": "ECC_DBE_AGG_CBU",
    "RETIRED_FIRST": "RETIRED_SBE",
    "RETIRED_LAST": "RETIRED_PENDING",
    "NVLINK_COUNTERS_FIRST": "NVLINK_CRC_FLIT_ERROR_COUNT_L0",
    "NVLINK_COUNTERS_LAST": "NVLINK_BANDWIDTH_C1_TOTAL",
    "VIOLATIONS_FIRST": "PERF_POLICY_POWER",
    "VIOLATIONS_LAST": "PERF_POLICY_TOTAL_BASE_CLOCKS",
    "MEMORY_TEMPERATURE": "MEMORY_TEMP",
    "TOTAL_ENERGY": "TOTAL_ENERGY_CONSUMPTION",
    "NVLINK_SPEED_FIRST": "NVLINK_SPEED_MBPS_L0",
    "NVLINK_SPEED_COMMON": "NVLINK_SPEED_MBPS_COMMON",
    "NVLINK_COUNT": "NVLINK_LINK_COUNT",
    "RETIRED_PENDING_SINGLE": "RETIRED_PENDING_SBE",
    "RETIRED_PENDING_DOUBLE": "RETIRED_PENDING_DBE",
    "PCIE_REPLAYS": "PCIE_REPLAY_COUNTER",
    "PCIE_REPLAY_ROLLOVERS": "PCIE_REPLAY_ROLLOVER_COUNTER",
    "NVLINK_MORE_COUNTERS_FIRST": "NVLINK_CRC_FLIT_ERROR_COUNT_L6",
    "NVLINK_MORE_COUNTERS_LAST": "NVLINK_BANDWIDTH_C1_L11",
    "NVLINK_MORE_SPEEDS_FIRST": "NVLINK_SPEED_MBPS_L6",
    "NVLINK_MORE_SPEEDS_LAST": "NVLINK_SPEED_MBPS_L11",
    "NVLINK_THROUGHPUT_FIRST": "NVLINK_THROUGHPUT_DATA_TX",
    "NVLINK_THROUGHPUT_LAST": "NVLINK_THROUGHPUT_RAW_RX",
    "REMAPPED_FIRST": "REMAPPED_COR",
    "REMAPPED_LAST": "REMAPPED_FAILURE",
    "NVLINK_GET_SPEED": "NVLINK_GET_SPEED",
    "NVLINK_GET_STATE": "NVLINK_GET_STATE",
    "NVLINK_GET_VERSION": "NVLINK_GET_VERSION",
    "POWER_AVERAGE": "POWER_AVERAGE",
    "POWER_INSTANT": "POWER_INSTANT",
    "POWER_LIMIT_LOWEST": "POWER_MIN_LIMIT",
    "POWER_LIMIT_HIGHEST": "POWER_MAX_LIMIT",
    "POWER_LIMIT_DEFAULT": "POWER_DEFAULT_LIMIT",
    "POWER_LIMIT_CURRENT": "POWER_CURRENT_LIMIT",
    "ENERGY": "ENERGY",
    "POWER_LIMIT_REQUESTED": "POWER_REQUESTED_LIMIT",
    "MARGIN_SHUTDOWN": "TEMPERATURE_SHUTDOWN_TLIMIT",
    "MARGIN_SLOWDOWN": "TEMPERATURE_SLOWDOWN_TLIMIT",
    "MARGIN_MEMORY": "TEMPERATURE_MEM_MAX_TLIMIT",
    "MARGIN_GPU": "TEMPERATURE_GPU_MAX_TLIMIT",
    "PCIE_BYTES_SENT": "PCIE_COUNT_TX_BYTES",
    "PCIE_BYTES_RECEIVED": "PCIE_COUNT_RX_BYTES",
    "RECOVERY_ACTION": "GET_GPU_RECOVERY_ACTION",
}


@pytest.fixture(scope="module")
def header() -> Path:
    try:
        return nvmlnames.header()
    except nvmlnames.HeaderError as error:
        pytest.skip(str(error))


def declarations() -> str:
    text = "".join((ABI / f"nvml_{part}.h").read_text() for part in ("result", "types", "health"))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def structs() -> dict[str, list[str]]:
    """Each struct and union of ours, with the names of its fields (not those of inner structs)."""
    found = {}
    for body, name in re.findall(
        r"typedef (?:struct|union) \{\n(.*?)\n\} (\w+);", declarations(), re.S
    ):
        flat = re.sub(r"struct \{.*?\}", "int", body, flags=re.S)
        found[name] = re.findall(r"(\w+)(?:\[\w+\])?;", flat)
    return found


def constants() -> list[str]:
    return re.findall(r"\b(NVML_\w+) = ", declarations())


def prototypes() -> dict[str, tuple[str, str]]:
    text = re.sub(r"/\*.*?\*/", "", (ABI / "nvml_calls.h").read_text(), flags=re.S)
    return {
        name: (answer, arguments)
        for answer, name, arguments in re.findall(
            r"^(nvmlReturn_t |const char \*)(nvml\w+)\((.*?)\);", text, re.S | re.M
        )
    }


def run_c(folder: Path, source: str, *flags: str) -> str:
    program = folder / "program"
    done = subprocess.run(
        ["cc", "-Wno-deprecated-declarations", *flags, "-x", "c", "-", "-o", program],
        input=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def layout_program(include: str, renamed: dict[str, str]) -> str:
    lines = []
    for name, members in structs().items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [
            f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));' for member in members
        ]
    for name in constants():
        lines.append(f'printf("{name} %lld\\n", (long long)({renamed.get(name, name)}));')
    body = "\n".join(lines)
    return f"#include <stddef.h>\n#include <stdio.h>\n{include}\nint main(void) {{\n{body}\n}}\n"


def test_structs_and_constants_are_those_of_the_header(header: Path, tmp_path: Path) -> None:
    assert len(structs()) > 30
    assert len(constants()) > 100
    ours = run_c(tmp_path, layout_program('#include "nvml_abi.h"', {}), f"-I{ABI}")
    theirs = run_c(tmp_path, layout_program(f'#include "{header}"', OTHER_NAMES))
    assert ours.splitlines() == theirs.splitlines()


def test_prototypes_are_those_of_the_header(header: Path, tmp_path: Path) -> None:
    assert len(prototypes()) > 150
    claims = "\n".join(
        f"_Static_assert(__builtin_types_compatible_p(__typeof__({name}), "
        f'{answer}({arguments})), "{name}");'
        for name, (answer, arguments) in prototypes().items()
    )
    source = f'#include "{header}"\n{claims}\nint main(void) {{ return 0; }}\n'
    run_c(tmp_path, source, "-DNVML_NO_UNVERSIONED_FUNC_DEFS")


def test_field_numbers_are_those_of_the_header(header: Path) -> None:
    source = (ROOT / "simgpu" / "src" / "nvml" / "fields.c").read_text()
    ours = {name: int(n) for name, n in re.findall(r"^ +FIELD_(\w+) = (\d+)", source, re.M)}
    found = re.findall(r"#define NVML_FI_DEV_(\w+)\s+(\d+)", header.read_text())
    theirs = {name: int(number) for name, number in found}
    assert ours == {name: theirs[theirs_name] for name, theirs_name in FIELDS.items()}


@pytest.mark.usefixtures("header")
def test_the_table_of_names_is_fresh() -> None:
    assert nvmlnames.main(["--check"]) == 0


@pytest.mark.usefixtures("header")
def test_a_stale_table_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "names.def"
    stale.write_text(nvmlnames.TABLE.read_text().replace("NAME(nvmlInit_v2)\n", ""))
    monkeypatch.setattr(nvmlnames, "TABLE", stale)
    assert nvmlnames.main(["--check"]) == 1
    assert "python -m simgpu.nvmlnames" in capsys.readouterr().err


def test_the_library_exports_every_name_and_nothing_else() -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARIES / "libnvidia-ml.so.1"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    assert exported == set(re.findall(r"^NAME\((\w+)\)", nvmlnames.TABLE.read_text(), re.M))


def test_what_is_declared_is_implemented() -> None:
    """A declared call that fell back to a stub would be a weak symbol."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARIES / "libnvidia-ml.so.1"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    strong = {line.split()[-1] for line in listing.splitlines() if line.split()[-2] == "T"}
    assert strong == set(prototypes())
