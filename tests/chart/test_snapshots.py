"""What the chart renders, kept as it was read and found right. KVCP_UPDATE_GOLDEN=1 writes it anew."""

import os
from pathlib import Path

import pytest
import yaml

from tests.chart import helm

pytestmark = helm.needs_helm()
HERE = Path(__file__).parent
CASES = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_rendered_as_before(case: str) -> None:
    values = yaml.safe_load((HERE / "values" / f"{case}.yaml").read_text())
    # The CRD has a file of its own to be compared with.
    objects = [item for item in helm.template(values) if item["kind"] != "CustomResourceDefinition"]
    text = yaml.safe_dump_all(objects, sort_keys=False, width=118)
    golden = HERE / "golden" / f"{case}.yaml"
    if os.environ.get("KVCP_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert list(yaml.safe_load_all(golden.read_text())) == objects


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in (HERE / "golden").glob("*.yaml")) == CASES
