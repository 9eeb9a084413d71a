"""Which programs are built, and when again."""

import dataclasses
from pathlib import Path

import pytest

from e2e.cluster import builder
from e2e.cluster.errors import MissingToolError

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99; exit; fi
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then out=$2; fi
  case "$1" in
    .) echo "$1" > "${out}coredns" ;;
    */v3|*/cmd/*|./pause) echo "$1" > "$out$(basename "${1%/v3}")" ;;
  esac
  shift
done
"""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text(GO)
    (tmp_path / "bin" / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("KVCP_TOOLS", raising=False)
    return tmp_path


def test_the_key_follows_everything_that_shapes_the_result() -> None:
    unit = builder.UNITS[0]
    keys = {
        builder.unit_key(unit, "go1"),
        builder.unit_key(unit, "go2"),
        builder.unit_key(dataclasses.replace(unit, tags="other"), "go1"),
        builder.unit_key(dataclasses.replace(unit, ldflags="-w"), "go1"),
        builder.unit_key(builder.UNITS[1], "go1"),
    }
    assert len(keys) == 5
    assert builder.unit_key(unit, "go1") in keys


def test_all_programs_end_up_in_one_folder(fake_go: Path) -> None:
    folder = builder.build(fake_go / "cache")
    assert sorted(path.name for path in folder.iterdir()) == [
        "containerd",
        "containerd-shim-runc-v2",
        "coredns",
        "ctr",
        "etcd",
        "helm",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-router",
        "kube-scheduler",
        "kubectl",
        "kubelet",
        "pause",
    ]
    assert (folder / "etcd").read_text() == "go.etcd.io/etcd/server/v3\n"
    assert builder.find_tools(fake_go / "cache") == folder
    assert builder.build(fake_go / "cache") == folder


def test_a_failed_build_leaves_nothing_that_looks_finished(fake_go: Path) -> None:
    (fake_go / "bin" / "go").write_text('#!/bin/sh\n[ "$1" = env ] && echo go1.99 && exit\nexit 1\n')
    with pytest.raises(builder.ClusterError, match="go build failed"):
        builder.build(fake_go / "cache")
    assert builder.find_tools(fake_go / "cache") is None
    assert not list((fake_go / "cache" / "tools" / "units").iterdir())
    with pytest.raises(MissingToolError, match=r"e2e\.cluster build"):
        builder.require_tools(fake_go / "cache")


def test_a_program_for_pods_leaves_the_clusters_own_as_they_are(fake_go: Path) -> None:
    script = (fake_go / "bin" / "go").read_text().replace("${out}coredns", "${out}deviceplugin")
    (fake_go / "bin" / "go").write_text(script)
    folder = builder.build_unit(builder.DEVICE_PLUGIN, fake_go / "cache")
    assert [path.name for path in folder.iterdir()] == ["deviceplugin"]
    assert builder.build_unit(builder.DEVICE_PLUGIN, fake_go / "cache") == folder
    assert builder.DEVICE_PLUGIN not in builder.UNITS
    assert folder not in builder.prune(fake_go / "cache")


def test_prune_keeps_what_is_current(fake_go: Path) -> None:
    folder = builder.build(fake_go / "cache")
    old = fake_go / "cache" / "tools" / "0ld"
    old.mkdir()
    assert builder.prune(fake_go / "cache") == [old]
    assert (folder / "etcd").exists()
