"""Every name of the driver API: exported, and found by version and kind of default stream."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from simgpu import names
from simgpu.node import CUDA_VERSION, LIBRARIES
from tests.simulated import simulated_node

LEGACY, PER_THREAD = 1, 2
SUCCESS, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED = 0, 1, 500, 801
FOUND, UNKNOWN_NAME, TOO_OLD = 0, 1, 2

# Answers requests of (name, version, flags) with (result, status, symbol at that address).
ASKING = """
import ctypes, json, sys
library = ctypes.CDLL("libcuda.so.1")
symbols, requests = json.load(sys.stdin)
at = {}
for symbol in symbols:
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    at.setdefault(address, []).append(symbol)
answers = []
for name, version, flags in requests:
    pointer, status = ctypes.c_void_p(1), ctypes.c_int(-1)
    result = library.cuGetProcAddress_v2(
        name.encode(), ctypes.byref(pointer), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    answers.append((result, status.value, at.get(pointer.value, [])))
json.dump(answers, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Row:
    base: str
    symbol: str
    version: int
    variant: str


@cache
def table() -> list[Row]:
    rows = re.findall(r"^NAME\((\w+), (\w+), (\d+), (\w+)\)$", names.TABLE.read_text(), re.M)
    return [Row(base, symbol, int(version), variant) for base, symbol, version, variant in rows]


@cache
def rows_of(base: str) -> list[Row]:
    return [row for row in table() if row.base == base]


def ask(requests: list[tuple[str, int, int]], **options: int) -> list[tuple[int, int, list[str]]]:
    with simulated_node("1xT4", **options) as node:
        done = subprocess.run(
            [sys.executable, "-c", ASKING],
            input=json.dumps([[row.symbol for row in table()], requests]),
            env=node.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    return [(result, status, symbols) for result, status, symbols in json.loads(done.stdout)]


def test_the_table_is_what_cudas_headers_say() -> None:
    try:
        headers = names.headers_folder()
    except names.NamesError as reason:
        pytest.skip(str(reason))
    assert names.table(names.entries(headers)) == names.TABLE.read_text()


def test_the_library_exports_exactly_these_names() -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARIES / "libcuda.so.1"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    assert exported == {row.symbol for row in table()}
    assert len(exported) > 700


def expected_of(base: str, version: int, flags: int) -> str | None:
    """The newest symbol that the version allows; per-thread ones first where they are wanted."""
    rows = [row for row in rows_of(base) if row.version <= version]
    twins = [row for row in rows if row.variant != "NONE"]
    plain = [row for row in rows if row.variant == "NONE"]
    chosen = twins if flags == PER_THREAD and twins else plain
    return max(chosen, key=lambda row: row.version).symbol if chosen else None


def boundaries() -> Iterator[tuple[str, int, int]]:
    """Each name at, before and after every version that it has, with every kind of stream."""
    for base in sorted({row.base for row in table()}):
        versions = {row.version for row in rows_of(base)}
        for version in sorted({v + step for v in versions for step in (-1, 0, 1)}):
            for flags in (0, LEGACY, PER_THREAD):
                if version <= CUDA_VERSION:
                    yield base, version, flags


def test_every_version_of_every_name_is_found() -> None:
    requests = list(boundaries())
    assert len(requests) > 4000
    wrong = []
    for request, (result, status, symbols) in zip(requests, ask(requests), strict=True):
        expected = expected_of(*request)
        if expected is None:
            fine = (result, status, symbols) == (SUCCESS, TOO_OLD, [])
        else:
            fine = (result, status) == (SUCCESS, FOUND) and expected in symbols
        if not fine:
            wrong.append((request, expected, result, status, symbols))
    assert wrong == []


def test_what_cannot_be_answered_is_refused() -> None:
    requests = [
        ("cuNothing", 12000, 0),
        ("cuMemAlloc_v2", 12000, 0),  # a symbol, not a base name
        ("cuMemAlloc", CUDA_VERSION + 1, 0),
        ("cuMemAlloc", 12000, 4),
        ("cuMemAlloc", 12000, LEGACY | PER_THREAD),
    ]
    unknown = (SUCCESS, UNKNOWN_NAME, [])
    refused = (INVALID_VALUE, -1, [])
    assert ask(requests) == [unknown, unknown, refused, refused, refused]


def test_a_driver_does_not_know_what_came_after_it() -> None:
    requests = [("cuMemAlloc", 12020, 0), ("cuMemAlloc", 12030, 0), ("cuGraphAddNode", 12020, 0)]
    answers = ask(requests, cuda_version=12020)
    assert answers[0][:2] == (SUCCESS, FOUND)
    assert answers[1] == (INVALID_VALUE, -1, [])
    assert "cuGraphAddNode" in answers[2][2]


CALLING = """
import ctypes
library = ctypes.CDLL("libcuda.so.1")
pointer = ctypes.c_void_p()
print(library.cuGetProcAddress(b"cuNothing", ctypes.byref(pointer), 12000, ctypes.c_uint64(0)))
print(library.cuGetProcAddress(b"cuInit", ctypes.byref(pointer), 12000, ctypes.c_uint64(0)))
identity = (ctypes.c_char * 16)()
print(library.cuGetExportTable(ctypes.byref(pointer), identity), pointer.value)
print(library.cuGraphConditionalHandleCreate(0, 0, 0, 0, 0))
"""


@pytest.mark.parametrize("log", ["", "1"])
def test_missing_entries_say_so_when_asked(log: str) -> None:
    with simulated_node("1xT4") as node:
        done = subprocess.run(
            [sys.executable, "-c", CALLING],
            env={**node.env, "ALIQUOT_SIM_LOG": log},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    assert done.stdout.split("\n") == [
        str(NOT_FOUND),
        str(SUCCESS),
        f"{NOT_FOUND} None",
        str(NOT_SUPPORTED),
        "",
    ]
    assert ("cuGraphConditionalHandleCreate is not simulated" in done.stderr) == bool(log)


def test_every_error_has_a_name_and_a_meaning() -> None:
    asking = (
        "import ctypes, json\n"
        "library = ctypes.CDLL('libcuda.so.1')\n"
        "def text(call, code):\n"
        "    found = ctypes.c_char_p()\n"
        "    return call(code, ctypes.byref(found)), (found.value or b'').decode()\n"
        "print(json.dumps({code: (*text(library.cuGetErrorName, code),"
        " *text(library.cuGetErrorString, code)) for code in range(1100)}))\n"
    )
    declared = re.findall(
        r"^    (CUDA_\w+) = (\d+),$",
        (LIBRARIES.parents[1] / "shim" / "abi" / "cuda_result.h").read_text(),
        re.M,
    )
    with simulated_node("1xT4") as node:
        done = subprocess.run(
            [sys.executable, "-c", asking],
            env=node.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    answers = {int(code): answer for code, answer in json.loads(done.stdout).items()}
    known = {code: answer for code, answer in answers.items() if answer[0] == SUCCESS}
    assert {code: answer[1] for code, answer in known.items()} == {
        int(code): name for name, code in declared
    }
    assert all(answer[2] == SUCCESS and answer[3] for answer in known.values())
    assert all(
        tuple(answers[code]) == (INVALID_VALUE, "", INVALID_VALUE, "")
        for code in answers.keys() - known.keys()
    )
