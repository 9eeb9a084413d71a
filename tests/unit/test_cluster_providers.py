"""Choosing a provider, and what each refuses."""

import os
from pathlib import Path

import pytest

from e2e.cluster import PROVIDERS, Provider, RefusedError, get_provider
from e2e.cluster.errors import ClusterError, MissingToolError
from e2e.cluster.existing import ExistingProvider, allowed_context, load_command
from e2e.cluster.kind import KindProvider, config
from e2e.cluster.settings import Settings

KUBECTL = """#!/bin/sh
case "$*" in
  "config current-context") echo staging ;;
  "config view"*) echo "pinned: staging" ;;
  *) echo ok ;;
esac
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path)


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_has_the_interface(name: str, settings: Settings) -> None:
    provider = get_provider(name, settings)
    assert isinstance(provider, Provider)
    assert provider.name == name
    assert settings.cache in provider.kubeconfig.parents


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setenv("KVCP_PROVIDER", "kind")
    assert get_provider(None, settings).name == "kind"
    with pytest.raises(ValueError, match="unknown provider"):
        get_provider("minikube", settings)


def test_existing_works_on_a_context_named_on_purpose_only() -> None:
    with pytest.raises(RefusedError, match="KVCP_EXISTING_CONTEXT"):
        allowed_context("prod", {})
    with pytest.raises(RefusedError, match="'staging', but the current context is 'prod'"):
        allowed_context("prod", {"KVCP_EXISTING_CONTEXT": "staging"})
    assert allowed_context("staging", {"KVCP_EXISTING_CONTEXT": "staging"}) == "staging"


def test_existing_pins_the_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "kubectl").write_text(KUBECTL)
    (tools / "kubectl").chmod(0o755)
    monkeypatch.setenv("KVCP_TOOLS", str(tools))
    provider = ExistingProvider(settings, {"KVCP_EXISTING_CONTEXT": "staging", "PATH": os.environ["PATH"]})
    assert provider.up().read_text() == "pinned: staging\n"
    assert provider.status() == {"existing cluster": "running"}
    provider.down()
    assert not provider.kubeconfig.exists()


def test_existing_loads_images_by_a_command_without_a_shell() -> None:
    with pytest.raises(RefusedError, match="KVCP_LOAD_IMAGE_CMD"):
        load_command("", Path("/a b.tar"), "r:1")
    assert load_command("load --from={archive} {ref}; x", Path("/a b.tar"), "r:1") == [
        "load",
        "--from=/a b.tar",
        "r:1;",
        "x",
    ]


def test_existing_reports_a_failed_load(settings: Settings, tmp_path: Path) -> None:
    provider = ExistingProvider(settings, {"KVCP_LOAD_IMAGE_CMD": "false {archive}"})
    with pytest.raises(ClusterError, match="failed"):
        provider.load_image(tmp_path / "a.tar", "r:1")


def test_kind_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="docker and kind"):
        KindProvider(settings).up()


def test_kind_uses_the_same_ranges(settings: Settings) -> None:
    assert config(settings)["networking"] == {"podSubnet": "10.244.0.0/24", "serviceSubnet": "10.96.0.0/16"}
