"""The object that a user writes."""

from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import parse_pool
from kvcachepool.facts import Observed
from kvcachepool.plan import make_plan
from kvcachepool.preview import PreviewError, preview
from kvcachepool.settings import Settings
from tests.fuzz.strategies import json_values, mutated, sayable, spoiled, texts
from tests.members import MASTER_READY
from tests.nodes import node

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = [
    yaml.safe_load(path.read_text())
    for path in sorted([*ROOT.glob("docs/examples/valid/*.yaml"), *ROOT.glob("tests/golden/cases/*/pool.yaml")])
]
SPECS = [manifest["spec"] for manifest in MANIFESTS]
SETTINGS = Settings(network_policies=True, lease_namespace="system", pod_labels=("a=b",))
READY = Observed(pods=MASTER_READY.pods, leader_worker_sets=True, nodes=(node(),))
specs = st.one_of(st.sampled_from(SPECS).flatmap(spoiled), json_values)


def pool(spec: Any, **more: Any) -> dict[str, Any]:
    metadata = {"name": "demo", "namespace": "team-a", "uid": "u", "generation": 1}
    return {"metadata": metadata, "spec": spec, **more}


@given(spec=specs)
def test_a_spec_is_understood_or_said_to_be_wrong(spec: Any) -> None:
    parsed = parse_pool(pool(spec))
    if isinstance(parsed, KVCachePool):
        plan = make_plan(parsed, READY, SETTINGS)
        assert plan.objects or plan.findings
        findings = plan.findings
    else:
        findings = parsed.findings
        assert 0 < len(findings) <= 10
    for finding in findings:
        sayable(finding.message, 4096)


@given(status=json_values, annotations=st.dictionaries(texts, texts, max_size=3))
def test_whatever_stands_in_the_status(status: Any, annotations: Any) -> None:
    """Annotations are a map of texts: the API server takes nothing else."""
    raw = pool(SPECS[0], status=status)
    raw["metadata"]["annotations"] = annotations
    assert isinstance(parse_pool(raw), KVCachePool)


@given(variable=texts, value=texts, words=st.lists(texts, max_size=5))
def test_variables_and_flags_of_the_user(variable: str, value: str, words: list[str]) -> None:
    engines = {"env": [{"name": variable, "value": value}], "extraArgs": words}
    parsed = parse_pool(pool(SPECS[0] | {"engines": engines}))
    findings = make_plan(parsed, READY, SETTINGS).findings if isinstance(parsed, KVCachePool) else parsed.findings
    for finding in findings:
        sayable(finding.message, 4096)


@given(text=st.one_of(st.sampled_from(MANIFESTS).map(yaml.safe_dump).flatmap(mutated), texts))
def test_a_manifest_is_planned_or_refused(text: str) -> None:
    try:
        assert list(preview(text, SETTINGS))
    except PreviewError as error:
        sayable(str(error))
