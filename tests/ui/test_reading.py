"""What people type: figures in the ways that they are written, and a clear error for everything else."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.ui import reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10.0),
        (" 10 ", 10.0),
        ("1,200", 1200.0),
        ("1 200 000", 1.2e6),
        ("10B", 1e10),
        ("2.5k", 2500.0),
        (".5", 0.5),
        ("1e6", 1e6),
    ],
)
def test_numbers_as_they_are_written(text: str, value: float) -> None:
    assert reading.number("x", text) == value


@pytest.mark.parametrize(
    "text", ["", "abc", "1,5", "nan", "inf", "-inf", "1e400", "10 apples", "<b>1</b>", "1;2", "٣x", "9" * 61, "1__0", "--1", "0x10"]
)
def test_what_is_no_number_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InputError) as caught:
        reading.number("workload.load.requests_per_s", text)
    assert caught.value.field == "workload.load.requests_per_s"
    assert caught.value.remedy


def test_a_decimal_comma_is_not_taken_for_thousands() -> None:
    with pytest.raises(InputError):
        reading.number("x", "1,50")


@pytest.mark.parametrize(("text", "value"), [("15%", 0.15), ("15 %", 0.15), ("0.15", 0.15), ("0", 0.0)])
def test_shares(text: str, value: float) -> None:
    assert reading.share("x", text) == value


@pytest.mark.parametrize(
    ("unit", "text", "value"), [("s", "1", 1.0), ("s", "800 ms", 0.8), ("ms", "30", 0.03), ("ms", "0.03 s", 0.03)]
)
def test_durations_take_their_unit_from_the_field_unless_written(unit: str, text: str, value: float) -> None:
    assert reading.duration(unit)("x", text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["10 parsecs", "5 %", "1k"])
def test_a_duration_in_another_unit_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        reading.duration("s")("x", text)


@pytest.mark.parametrize("text", ["1.5", "0.1", "1e-3"])
def test_a_count_has_no_decimals(text: str) -> None:
    with pytest.raises(InputError):
        reading.whole("users", text)


def test_prices_by_gpu() -> None:
    assert reading.prices("p", "h100-80g-sxm $2.10; l40s=0.9,") == {"h100-80g-sxm": 2.1, "l40s": 0.9}
    assert reading.prices("p", "  ") == {}


@pytest.mark.parametrize("text", ["2.10", "h100 2.10 usd", "h100 x", "h100"])
def test_a_price_without_its_gpu_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        reading.prices("hardware.usd_per_gpu_hour", text)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_nothing_that_is_typed_raises_anything_but_an_input_error(text: str) -> None:
    for read in (reading.number, reading.whole, reading.share, reading.duration("s"), reading.prices, reading.word):
        with contextlib.suppress(InputError):
            read("field", text)
