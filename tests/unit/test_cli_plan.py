from pathlib import Path

import yaml
from click.testing import CliRunner

from kvcachepool.cli import main
from tests.pools import MOONCAKE, raw


def test_plan_prints_the_objects_of_a_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(yaml.safe_dump(MOONCAKE))
    result = CliRunner().invoke(main, ["plan", str(manifest)])
    assert result.exit_code == 0, result.output
    kinds = [(d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(result.output)]
    digest = kinds[-1][1].rpartition("-")[2]
    assert len(digest) == 12
    assert kinds == [
        ("Service", "demo-master"),
        ("Service", "demo-engines"),
        ("PodDisruptionBudget", "demo-master"),
        ("PodDisruptionBudget", "demo-store"),
        ("PodDisruptionBudget", "demo-engine"),
        ("Deployment", "demo-master"),
        ("Deployment", "demo-store"),
        ("Deployment", f"demo-engine-{digest}"),
    ]


def test_plan_of_a_refused_pool_names_what_to_change() -> None:
    result = CliRunner().invoke(main, ["plan", "-"], input=yaml.safe_dump(raw({"engines": {"extraArgs": ["-tp=2"]}})))
    assert result.exit_code == 1
    assert "spec.engines.extraArgs: -tp is not allowed" in result.output


def test_plan_of_a_manifest_with_unusable_metadata_names_the_field() -> None:
    manifest = MOONCAKE | {"metadata": {"name": "demo", "namespace": True}}
    result = CliRunner().invoke(main, ["plan", "-"], input=yaml.safe_dump(manifest))
    assert result.exit_code == 1
    assert "metadata.namespace: Input should be a valid string, found 'True'" in result.output


def test_plan_of_a_missing_file_says_so() -> None:
    result = CliRunner().invoke(main, ["plan", "/nowhere/pool.yaml"])
    assert result.exit_code == 1
    assert "/nowhere/pool.yaml" in result.output
