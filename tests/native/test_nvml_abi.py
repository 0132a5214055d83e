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
