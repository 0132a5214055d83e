"""Sizes as people write them, and as we write them back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.errors import UserError
from aliquot.sizes import format_size, parse_size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("4Gi", 4 * GIB),
        ("4GiB", 4 * GIB),
        ("4096Mi", 4 * GIB),
        ("1.5Gi", 3 * GIB // 2),
        ("512Ki", 512 << 10),
        ("2Ti", 2 << 40),
        ("4G", 4_000_000_000),
        ("4GB", 4_000_000_000),
        ("10k", 10_000),
        ("1048576", 1 << 20),
        ("100B", 100),
        ("0", 0),
        (" 4Gi ", 4 * GIB),
        ("25%", 20 * GIB),
        ("33.3%", 28_604_482_191),
        ("100%", 80 * GIB),
        ("0%", 0),
        ("0.1Gi", 107_374_182),
    ],
)
def test_sizes_mean_what_they_say(text: str, bytes_: int) -> None:
    assert parse_size(text, 80 * GIB) == bytes_


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gi", "-1Gi", "+1Gi", "4 Gi", "4gi", "4GI", "4m", "4g", "1e9", "0x10", "1,5Gi"),
        *("1.Gi", ".5Gi", "25 %", "%", "101%", "4Gi%", "inf", "nan", "\u0661Gi", "4Gi4Gi", "4Gii"),
    ],
)
def test_everything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_size(text, 80 * GIB)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [
        *((0, "0"), (1023, "1023"), (1024, "1Ki"), (300 << 20, "300Mi"), (4 * GIB, "4Gi")),
        *((3 * GIB // 2, "1.5Gi"), (80 * GIB + 1, "80Gi"), (1 << 41, "2Ti")),
    ],
)
def test_sizes_are_written_short(bytes_: int, text: str) -> None:
    assert format_size(bytes_) == text


@given(st.integers(0, 1 << 47))
def test_what_we_write_can_be_read(bytes_: int) -> None:
    written = parse_size(format_size(bytes_), 0)
    assert abs(written - bytes_) <= bytes_ / 100
