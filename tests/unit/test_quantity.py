import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.quantity import align_up, format_bytes, human_bytes, parse_amount, parse_bytes


# InferenceX PR#2999 and vLLM's own parser: a size in another notation killed the engine at start.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80Gi", 85899345920),
        ("80G", 80000000000),
        ("8.5Gi", 9126805504),
        ("1e9", 1000000000),
        ("1E2", 100),
        ("85899345920", 85899345920),
        (85899345920, 85899345920),
        ("0", 0),
        ("500M", 500000000),
        ("1.5", 2),
        ("128k", 128000),
        ("3Ei", 3 * 2**60),
    ],
)
def test_a_kubernetes_quantity_is_a_number_of_bytes(text: str | int, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["-1", "80 GB", "80GB", "Gi", "", "1e", "100m", "1Gie3", "1e3Gi", "0x10", "٣Gi", "1_000"]
)
def test_anything_else_is_refused_with_what_was_found_and_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a non-negative quantity") as error:
        parse_bytes(text)
    assert repr(text) in str(error.value)


@given(st.integers(min_value=0, max_value=2**62))
def test_formatting_is_exact(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_bytes(text) >= 0


@given(st.integers(min_value=0, max_value=2**50), st.integers(min_value=1, max_value=2**30))
def test_aligning_gives_the_next_multiple(value: int, alignment: int) -> None:
    aligned = align_up(value, alignment)
    assert aligned % alignment == 0
    assert value <= aligned < value + alignment


def test_sizes_for_people_are_rounded() -> None:
    assert human_bytes(85899345920) == "80.0 GiB"
    assert human_bytes(1234) == "1.2 KiB"
    assert human_bytes(12) == "12 B"


@pytest.mark.parametrize(("text", "expected"), [("1e999", 2**63 - 1), ("-9999Ei", 1 - 2**63), ("2", 2)])
def test_an_amount_is_capped_as_by_the_api_machinery(text: str, expected: int) -> None:
    assert parse_amount(text) == expected
