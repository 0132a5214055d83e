"""No call that takes, gives back or runs anything is missing from the hook table unnoticed."""

import re
from pathlib import Path

import pytest

from shim import coverage, memory_page
from shim.coverage import CoverageError, Row, Symbol


@pytest.fixture(scope="module")
def headers() -> Path:
    try:
        return coverage.headers()
    except CoverageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def symbols(headers: Path) -> list[Symbol]:
    return coverage.driver_symbols(headers)


def test_the_table_covers_the_headers(headers: Path, symbols: list[Symbol]) -> None:
    assert list(coverage.gaps(coverage.rows(), symbols, coverage.nvml_symbols(headers))) == []


def test_the_headers_were_read(headers: Path, symbols: list[Symbol]) -> None:
    by_name = {symbol.name: symbol for symbol in symbols}
    assert len(by_name) > 700
    assert by_name["cuMemAlloc_v2"] == Symbol("cuMemAlloc_v2", "cuMemAlloc", 3020)
    assert by_name["cuMemFreeAsync_ptsz"].since == 11020
    assert len(coverage.nvml_symbols(headers)) > 300


def test_the_page_is_fresh() -> None:
    assert memory_page.PAGE.read_text() == memory_page.page(coverage.rows())


def test_every_row_is_in_the_page() -> None:
    page = memory_page.page(coverage.rows())
    for row in coverage.rows():
        assert f"`{row.symbol}`" in page


TABLE = [Row("cuMemAlloc_v2", 3020, "RESERVES", "bytes")]
ALLOC = Symbol("cuMemAlloc_v2", "cuMemAlloc", 3020)


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        (Symbol("cuMemAllocElsewhere", "cuMemAllocElsewhere", 14000), "neither hooked nor left"),
        (Symbol("cuMemAlloc_v3", "cuMemAlloc", 14000), "other versions of it are"),
        (Symbol("cuLaunchSomething", "cuLaunchSomething", 14000), "neither hooked nor left"),
    ],
)
def test_a_new_call_is_noticed(extra: Symbol, complaint: str) -> None:
    found = [line for line in coverage.gaps(TABLE, [ALLOC, extra], set()) if extra.name in line]
    assert len(found) == 1
    assert complaint in found[0]


def test_a_new_call_of_nvml_is_noticed() -> None:
    found = list(coverage.gaps(TABLE, [ALLOC], {"nvmlDeviceGetMemoryInfo_v9"}))
    assert any(line.startswith("nvmlDeviceGetMemoryInfo_v9 is neither") for line in found)


def test_a_wrong_version_and_a_stale_row_are_noticed() -> None:
    wrong = [Row("cuMemAlloc_v2", 2000, "RESERVES", "bytes"), Row("cuGone", 1, "SHOWS", "nothing")]
    found = list(coverage.gaps(wrong, [ALLOC], set()))
    assert "cuMemAlloc_v2 is of CUDA 3020, not 2000" in found
    assert "cuGone is hooked, but no header has it" in found


def test_a_line_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(CoverageError):
        coverage.rows('DRIVER(cuMemAlloc_v2, RESERVES, "bytes")\n')


def test_the_table_was_compared_with_the_newest_cuda_it_knows(symbols: list[Symbol]) -> None:
    source = (coverage.TABLE.parent / "lookup.c").read_text()
    (version,) = re.findall(r"TABLE_VERSION = (\d+)", source)
    assert int(version) == max(symbol.since for symbol in symbols)
