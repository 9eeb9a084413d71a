import re

from hypothesis import given
from hypothesis import strategies as st

from kvcachepool import names

LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
LABEL_VALUE = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
SUFFIXES = ("master", "store", "engine", "engines")
subdomains = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?){0,3}", fullmatch=True
)


def test_a_short_name_is_kept() -> None:
    assert names.child("demo", "master") == "demo-master"


def test_alike_dotted_and_long_names_do_not_meet() -> None:
    pools = ["a.b", "a-b", "a" * 253, "a" * 252, "0day", "day", "demo", "demo-master", "vllm", "x" * 40, "x" * 32]
    children = [names.child(pool, suffix) for pool in pools for suffix in SUFFIXES]
    assert len(set(children)) == len(children)


@given(subdomains)
def test_every_child_has_a_legal_service_name(pool: str) -> None:
    for suffix in (*SUFFIXES, "engine-0123456789ab"):
        name = names.child(pool, suffix)
        assert LABEL.match(name), name
        assert len(name) <= 63 - len("-1234567890") - len("-999")
    assert LABEL_VALUE.match(names.pool_label(pool))
    assert len(names.pool_label(pool)) <= 63


@given(subdomains, subdomains)
def test_two_pools_share_no_child(one: str, other: str) -> None:
    if one != other:
        mine = {names.child(one, suffix) for suffix in SUFFIXES}
        assert mine.isdisjoint({names.child(other, suffix) for suffix in SUFFIXES})
        assert names.pool_label(one) != names.pool_label(other)


@given(subdomains)
def test_a_name_that_looks_shortened_is_shortened_too(pool: str) -> None:
    shortened = names.stem(pool)
    if shortened != pool:
        assert names.stem(shortened) != shortened
