"""Inputs: of the right form with something wrong in it, and of no form at all."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kvcachepool.observe.http import Answer

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NASTY = (
    "", " ", "\x00", "\n", "\u2028", "\x1b[31m", "😀", "ﷺ", "²", "٣", "-0", "NaN", "inf", "1e999",
    "9" * 5000, "-" + "9" * 5000, "0x1f", "true", "null", "{}", "[]", "[" * 3000, '{"a":' * 3000, "../../etc/passwd", "a" * 70000,
    "$(HOME)", "{{ .Values }}", "%s%n", "'\"\\", "--", "--=", "-tp", "--tensor_parallel_size", "__proto__", "kvcachepool.io/pool",
)  # fmt: skip
"""Texts that have broken parsers before: of ours and of others."""

texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=40), st.text(max_size=200))
"""As the API server sends them, or a reader gives them: never half of a surrogate pair."""
wire_texts = st.one_of(texts, st.text(st.characters(), max_size=40), st.sampled_from(["\ud800", "\udfff\ud800x"]))
"""As JSON of anybody else can hold them."""
numbers = st.one_of(
    st.integers(), st.sampled_from([0, -1, 2**31, 2**63, -(2**63) - 1, 10**400, -(10**400)]), st.floats(),
    st.sampled_from([1e308, -1e308, float("inf"), float("-inf"), float("nan"), 5e-324]),
)  # fmt: skip


def _values(strings: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, strings),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)),
        max_leaves=12,
    )


scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
json_values = _values(texts)
wire_values = _values(wire_texts)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in children:
        yield from _places(inner, (*path, key))


@st.composite
def spoiled(draw: st.DrawFn, base: Any, values: st.SearchStrategy[Any] = json_values, most: int = 4) -> Any:
    """`base` with some of its parts replaced, removed or added to."""
    result = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, most))):
        places = [path for path in _places(result) if path]
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        holder = result
        for key in way:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[last] = draw(values)
            case "remove":
                del holder[last]
            case _ if isinstance(holder, dict):
                holder[draw(texts)] = draw(values)
            case _:
                holder.insert(0, draw(values))
    return result


@st.composite
def mutated(draw: st.DrawFn, base: str, most: int = 6) -> str:
    """`base` with stretches cut out, doubled or overwritten."""
    result = base
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(result)))
        end = min(len(result), start + draw(st.integers(0, 200)))
        middle = draw(st.one_of(st.just(""), texts, st.just(result[start:end] * 3)))
        result = result[:start] + middle + result[end:]
    return result


def answers(text: st.SearchStrategy[str]) -> st.SearchStrategy[Answer]:
    """As the HTTP reader gives them: text without surrogates, or an error."""
    good = text.map(lambda body: Answer(text=body.encode("utf-8", "replace").decode("utf-8", "replace")))
    return st.one_of(good, good, good, st.builds(Answer, error=st.sampled_from(["refused", "HTTP 503"])))


def documents(base: Any) -> st.SearchStrategy[str]:
    """JSON texts: spoiled, arbitrary, or no JSON."""
    return st.one_of(
        spoiled(base, wire_values).map(json.dumps), wire_values.map(json.dumps), mutated(json.dumps(base)), texts,
        st.sampled_from(["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '"' + "x" * 1_000_000]),
    )  # fmt: skip


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def sayable(text: str, longest: int = 32768) -> None:
    """A message may be shown: it is short enough for a condition, and can be written as UTF-8."""
    assert len(text) <= longest
    text.encode()
