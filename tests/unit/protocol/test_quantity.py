"""Kubernetes quantities are read exactly, and only as Kubernetes writes them."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.protocol.quantity import QuantityError, parse_quantity

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4Gi", 4 << 30),
        ("512Mi", 512 << 20),
        ("16", 16),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("+5", 5),
        ("-1", -1),
        (".5k", 500),
        ("5.", 5),
        ("1.5Gi", 3 << 29),
        ("500m", Decimal("0.5")),
        ("1e-2", Decimal("0.01")),
        ("0", 0),
    ],
)
def test_quantities_mean_what_kubernetes_says(text: str, value: Decimal | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Gi",
        "4 Gi",
        "4GiB",
        "4gi",
        "4ki",
        "4K",
        "0x10",
        "1e",
        "1e3Gi",
        "--1",
        "1,5",
        "25%",
        "NaN",
        "inf",
        "1e9999",
        "\u0664",
        "4Gi\n",
    ],
)
def test_what_is_no_quantity_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(QuantityError, match="4Gi"):
        parse_quantity(text)


@settings(max_examples=200)
@given(
    st.integers(0, 10**12),
    st.integers(0, 999),
    st.sampled_from(sorted(FACTORS)),
    st.sampled_from(["", "+", "-"]),
)
def test_every_number_with_every_suffix_is_exact(
    whole: int, thousandths: int, suffix: str, sign: str
) -> None:
    value = (whole + Fraction(thousandths, 1000)) * FACTORS[suffix]
    if sign == "-":
        value = -value
    assert Fraction(parse_quantity(f"{sign}{whole}.{thousandths:03}{suffix}")) == value


@settings(max_examples=200)
@given(st.text(max_size=12))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    try:
        value = parse_quantity(text)
    except QuantityError:
        return
    assert value.is_finite()
