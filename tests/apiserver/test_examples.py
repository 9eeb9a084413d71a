"""The examples of the documentation, applied for real."""

import re
from pathlib import Path

import pytest

from e2e.cluster.kubectl import Kubectl
from tests.apiserver.conftest import refusal
from tests.unit.test_examples import EXAMPLES, INVALID, VALID
from tests.unit.test_examples import refusal as example_of


def test_valid_examples_are_taken(kubectl: Kubectl, namespace: str) -> None:
    where = (f"--namespace={namespace}", "-f", str(EXAMPLES / "valid"))
    kubectl.run("apply", *where)
    again = kubectl.run("apply", *where).splitlines()
    assert len(again) == len(VALID)
    assert all(line.endswith("unchanged") for line in again), again
    kubectl.run("apply", "--server-side", "--force-conflicts", *where)
    stored = kubectl.get("kvpool", f"--namespace={namespace}")["items"]
    assert [item["metadata"]["generation"] for item in stored] == [1] * len(VALID)


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid_examples_are_refused_with_the_message_they_name(kubectl: Kubectl, path: Path) -> None:
    said = refusal(kubectl, "apply", "--namespace=default", "-f", str(path))
    assert example_of(path).expect in said
    assert "not-a-real-token" not in said


def test_server_side_apply_refuses_them_all_and_names_the_fields(kubectl: Kubectl, namespace: str) -> None:
    """Wrong types and doubles have other words there: the merge meets them before the validation does."""
    where = (f"--namespace={namespace}", "-f", str(EXAMPLES / "invalid"))
    said = refusal(kubectl, "apply", "--server-side", *where)
    assert kubectl.get("kvpool", f"--namespace={namespace}")["items"] == []
    for path in INVALID:
        field = re.search(r"spec\.[\w.]+", example_of(path).expect)
        assert field, path
        assert field[0] in said, path
    assert "not-a-real-token" not in said
