"""Small parsers: logs, quantities, versions, flags, messages of others."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool import quantity
from kvcachepool.compat import versions
from kvcachepool.crd_skew import undeclared_field
from kvcachepool.credentials import holds_credential, redact, secret_name
from kvcachepool.names import child, pool_label
from kvcachepool.observe.logs import MAX_LENGTH, actionable_line
from kvcachepool.schema.flags import SCHEMA_FLAGS, abbreviated, hidden, refusal, schema_flag, tokens
from kvcachepool.schema.member import model_unseen, models
from kvcachepool.status.text import quote
from tests.fuzz.strategies import fixture, mutated, sayable, texts

LOG = fixture("logs/engine_master_down.txt")
HOSTILE_LOGS = (
    "a" * 2_000_000, "\n" * 500_000, "ERROR " * 100_000, ("(" * 40 + "pid=1) ") * 5_000,
    ("(" + "a" * 200 + "\n") * 2_000, ("(" + "a." * 900 + " ") * 1_000, "Traceback (most recent call last):\n" * 20_000,
    "token=" * 50_000, "x://:" * 20_000 + "@", "- " * 100_000, "bearer " * 50_000, " " * 1_000_000 + "Error:", "é" * 100_000,
)  # fmt: skip
sizes = st.one_of(
    st.from_regex(r"\A[0-9.+-]{0,20}(k|Ki|Mi|Gi|Ei|E|m|n|u|[eE][+-]?[0-9]{0,6})?\Z"), texts, st.integers(),
)  # fmt: skip


@given(log=st.one_of(mutated(LOG), st.sampled_from(HOSTILE_LOGS), texts))
def test_of_any_log_a_line_is_told(log: str) -> None:
    line = actionable_line(log.encode("utf-8", "replace").decode())
    sayable(line, MAX_LENGTH)
    assert "\n" not in line


@given(text=st.one_of(texts, st.sampled_from(HOSTILE_LOGS).map(lambda log: log[:20_000])))
def test_any_sentence_of_others_is_quoted(text: str) -> None:
    assert len(quote(text)) <= 300
    assert quote(text) == quote(text)
    redact(text), holds_credential(text), secret_name(text), undeclared_field(text)


@given(value=sizes)
def test_any_quantity_is_a_number_or_refused(value: str | int) -> None:
    for parse in (quantity.parse_bytes, quantity.parse_amount):
        try:
            number = parse(value)
        except ValueError as error:
            sayable(str(error), 1024)
            continue
        assert isinstance(number, int | Decimal)
        assert Decimal(number).is_finite()
        quantity.human_bytes(number)  # type: ignore[arg-type]


@given(text=texts, specifier=st.one_of(texts, st.from_regex(r"\A(>=|<|==)[0-9.]{1,30}\Z")))
def test_any_version(text: str, specifier: str) -> None:
    versions.cuda_in_tag(text), versions.tag_of(text)
    for call in (
        lambda: versions.cuda_version(text),
        lambda: versions.fits(text, specifier),
        lambda: versions.fits("0.1", specifier),
    ):
        try:
            call()
        except ValueError as error:
            sayable(str(error), 1024)


names = st.sampled_from([name for flag in SCHEMA_FLAGS for name in flag.names])


@given(
    words=st.lists(
        st.one_of(
            texts, names, st.sampled_from(["serve", "vllm", "--model", "$(X)"]), st.tuples(names, texts).map("=".join)
        ),
        max_size=8,
    )
)
def test_any_command_line(words: list[str]) -> None:
    for name, value in tokens(tuple(words)):
        flag = schema_flag(name)
        if flag is not None:
            flag.read(name, value)
        refusal(name), abbreviated(name)
    assert len(list(hidden(tuple(words)))) <= len(words)
    for bare in (True, False):
        named = models(words, bare=bare)
        assert not (named and model_unseen(words, bare=bare))


@given(name=st.one_of(texts, st.from_regex(r"\A[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?\Z")))
def test_any_name_gives_a_label(name: str) -> None:
    assert len(pool_label(name)) <= 63
    assert len(child(name, "master")) <= 63


@pytest.mark.parametrize("log", HOSTILE_LOGS, ids=lambda log: log[:10].strip() or "blank")
def test_hostile_logs(log: str) -> None:
    assert len(actionable_line(log)) <= MAX_LENGTH
