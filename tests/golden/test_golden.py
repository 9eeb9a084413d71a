"""Whole object sets. A case is a folder with `pool.yaml` and the objects that must come of it, `objects.yaml`.

`KVCP_UPDATE_GOLDEN=1` writes them anew; the diff is then for people to judge.
"""

import json
import os
from pathlib import Path

import pytest
import yaml

from kvcachepool.podscripts import source
from kvcachepool.preview import PreviewError, preview
from kvcachepool.settings import Settings

CASES = Path(__file__).parent / "cases"
SETTINGS = {
    "private-registry": Settings(image_registry="registry.internal:5000", image_pull_secrets=("regcred",)),
    "network-policies": Settings(
        network_policies=True,
        lease_namespace="kvcachepool-system",
        pod_labels=("app.kubernetes.io/name=kvcachepool-operator", "app.kubernetes.io/instance=kvcachepool"),
        metrics_from='[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]',
    ),
}


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir()))
def test_a_pool_becomes_just_these_objects(case: str) -> None:
    manifest = (CASES / case / "pool.yaml").read_text()
    rendered = "---\n".join(_short(document) for document in preview(manifest, SETTINGS.get(case, Settings())))
    expected = CASES / case / "objects.yaml"
    if os.environ.get("KVCP_UPDATE_GOLDEN"):
        expected.write_text(rendered)
    assert rendered == expected.read_text()


def _short(document: str) -> str:
    """With the name of a program instead of its text."""
    loaded = json.dumps(yaml.safe_load(document), sort_keys=False)
    short = loaded
    for name in ("preflight", "drain"):
        short = short.replace(json.dumps(source(name)), f'"<podscripts/{name}.py>"')
    return document if short == loaded else yaml.dump(json.loads(short), sort_keys=False, width=4096)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("a: [", "not YAML"),
        ("kind: Pod", "found no KVCachePool"),
        ("kind: KVCachePool", "metadata.name is required"),
        ("kind: KVCachePool\nmetadata: {name: x}", "spec.backend is required, found none"),
        (
            "kind: KVCachePool\nmetadata: {name: x}\nspec: {model: {id: a}, backend: {native: {}}, engines: {extraArgs: [-tp=2]}}",
            "-tp is not allowed",
        ),
    ],
)
def test_what_cannot_be_planned_says_why(manifest: str, message: str) -> None:
    with pytest.raises(PreviewError, match=message.replace(".", r"\.")):
        list(preview(manifest, Settings()))
