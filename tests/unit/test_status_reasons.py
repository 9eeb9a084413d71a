"""The table of reasons is complete and closed, and the reference is generated from it."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from kvcachepool.api.status import PoolStatus
from kvcachepool.status import reference
from kvcachepool.status.make import CHAINS
from kvcachepool.status.reasons import BY_TYPE, CONDITIONS, NEEDED, reasons_of
from kvcachepool.status.verdict import speaker
from tests.status_scenes import Case
from tests.unit import (
    test_status_engines,
    test_status_hardware,
    test_status_reuse,
    test_status_schema,
    test_status_store,
)

CASES: list[Case] = [
    *test_status_engines.CASES,
    *test_status_hardware.CASES,
    *test_status_reuse.CASES,
    *test_status_schema.CASES,
    *test_status_store.CASES,
    Case("Ready", "AllConditionsTrue"),
]
STATUS = Path(reference.__file__).parent


def test_every_reason_is_produced_by_a_case() -> None:
    table = {(info.type, reason.name) for info in CONDITIONS for reason in info.reasons}
    of_the_pass_itself = {("Accepted", "InternalError")}  # see test_status_make
    assert {(case.condition, case.reason) for case in CASES} | of_the_pass_itself == table


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_conditions_of_a_case_are_in_the_table(case: Case) -> None:
    status: PoolStatus = case.status()
    assert [c.type for c in status.conditions] == [info.type for info in CONDITIONS]
    for condition in status.conditions:
        reason = reasons_of(condition.type)[condition.reason]
        assert condition.type == "Ready" or reason.status == condition.status
        assert condition.message
        assert condition.message.isprintable()


def test_every_reason_in_the_code_is_in_the_table() -> None:
    """Reasons are literals at the calls of a speaker; those out of dictionaries are covered by the cases."""
    speakers = {"_say", "_verified", "_worthwhile", "_ready", "say"}
    known = {reason.name for info in CONDITIONS for reason in info.reasons}
    found = [
        node.args[0].value
        for path in STATUS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in speakers
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
    assert len(found) > 50
    assert set(found) <= known


def test_a_reason_outside_the_table_cannot_be_said() -> None:
    with pytest.raises(KeyError):
        speaker("StoreReady")("Verified", "x")


def test_every_condition_has_a_chain_and_a_way_to_be_true() -> None:
    assert set(CHAINS) | {"Ready"} == set(BY_TYPE)
    for info in CONDITIONS:
        assert any(reason.status == "True" for reason in info.reasons)
        assert max(Counter(reason.name for reason in info.reasons).values()) == 1


def test_what_is_wrong_has_a_remedy() -> None:
    for info in CONDITIONS:
        for reason in info.reasons:
            assert reason.meaning.endswith(".")
            assert reason.status != "False" or reason.remedy.endswith("."), reason.name


def test_the_reference_names_every_condition_and_reason() -> None:
    page = reference.markdown()
    for info in CONDITIONS:
        section = page.partition(f"## {info.type}\n")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| ") and "| status |" not in line]
        assert len(rows) == len(info.reasons) + (info.type == "Ready")
        for reason in info.reasons:
            assert f"`{reason.name}`" in section
    assert "`StoreReady`" in page.partition("## Accepted")[0]
    assert all(f"`{kind}`" in page for kind in NEEDED)
