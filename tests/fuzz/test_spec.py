"""The object that a user writes."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import parse_pool
from kvcachepool.facts import MasterFacts, Observed
from kvcachepool.plan import make_plan
from kvcachepool.preview import PreviewError, preview
from kvcachepool.render.device_plugin import objects, wishes
from kvcachepool.settings import Settings
from kvcachepool.status import make_status
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
FULL = replace(READY, master=MasterFacts(reachable=True, keys=100_000, allocated=100_000 * 2**16))
TERM = {
    "matchExpressions": [{"key": "example.com/zone", "operator": "In", "values": ["a"]}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-2"]}],
}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM, {}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}],
    },
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
}
amounts = st.one_of(
    st.from_regex(r"\A[+-]?[0-9]{0,4}\.?[0-9]{1,30}([numkMGTPE]i?|[eE][+-]?[0-9.]{1,4})?\Z"), json_values
)
names = st.one_of(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.from_regex(r"\Ahugepages-[0-9]{1,3}(Ki|Mi)\Z"), texts
)
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


@given(affinity=st.one_of(spoiled(AFFINITY), json_values), selector=st.dictionaries(texts, texts, max_size=2))
def test_any_placement(affinity: Any, selector: dict[str, str]) -> None:
    placed = {"affinity": affinity, "nodeSelector": selector}
    transport = {
        "protocol": "RDMA",
        "rdma": {"resourceName": "rdma/hca", "devicePlugin": {"selectors": {"vendors": ["15b3"]}}},
    }
    raw = pool(SPECS[0] | {"scheduling": placed, "transport": transport})
    asked = wishes([raw])
    objects(asked, SETTINGS, owner={})
    parsed = parse_pool(raw)
    findings = make_plan(parsed, READY, SETTINGS).findings if isinstance(parsed, KVCachePool) else parsed.findings
    for message in (*(finding.message for finding in findings), *asked.conflicts.values()):
        sayable(message, 4096)


@given(values=st.dictionaries(names, amounts, max_size=3), part=st.sampled_from(["engines", "store", "master"]))
def test_any_resources(values: dict[str, Any], part: str) -> None:
    given_ = {"resources": {"limits": values}}
    changed = {"engines": given_} if part == "engines" else {"store": given_ if part == "store" else {"master": given_}}
    parsed = parse_pool(pool(SPECS[0] | changed))
    if isinstance(parsed, KVCachePool):
        plan = make_plan(parsed, FULL, SETTINGS)
        make_status(parsed, plan, FULL, datetime(2026, 3, 1, tzinfo=UTC))


@given(text=st.one_of(st.sampled_from(MANIFESTS).map(yaml.safe_dump).flatmap(mutated), texts))
def test_a_manifest_is_planned_or_refused(text: str) -> None:
    try:
        assert list(preview(text, SETTINGS))
    except PreviewError as error:
        sayable(str(error))
