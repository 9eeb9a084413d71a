import pytest

from kvcachepool.crd_skew import undeclared_field, without

PREFIX = "failed to create typed patch object (ns/p; kvcachepool.io/v1alpha1, Kind=KVCachePool): "


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (f"{PREFIX}.status.fromTheFuture: field not declared in schema", ("fromTheFuture",)),
        (f"{PREFIX}.status.verification.alsoNew: field not declared in schema", ("verification", "alsoNew")),
        (f'{PREFIX}.status.conditions[type="Ready"].severity: field not declared in schema', ("conditions",)),
        ("conflict", None),
        (f"{PREFIX}.spec.x: field not declared in schema", None),
    ],
)
def test_the_field_is_read_from_the_api_servers_sentence(message: str, field: tuple[str, ...] | None) -> None:
    assert undeclared_field(message) == field


def test_only_the_unknown_field_is_left_out() -> None:
    status = {"a": 1, "b": {"c": 2, "d": 3}}
    assert without(status, [("b", "c")]) == {"a": 1, "b": {"d": 3}}
    assert without(status, [("b",), ("x", "y")]) == {"a": 1}
    assert status == {"a": 1, "b": {"c": 2, "d": 3}}
