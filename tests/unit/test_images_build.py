"""The build's bookkeeping: cache, atomicity, cleaning up. buildah itself is replaced."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from images import build as images_build
from images import buildah
from images.pins import load
from images.recipe import RootFs, recipe


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Everything that would have been done with buildah, in order."""
    made: list[str] = []

    def push(reference: str, archive: Path) -> None:
        made.append(f"push {reference}")
        archive.write_bytes(b"archive")

    def base_image(rootfs: RootFs, cache: Path) -> str:
        return f"base:{rootfs.key}"

    def bud(*arguments: object, layers: bool) -> None:
        made.append(f"bud {arguments[2]} layers={layers}")

    def remove(repository: str, keep: str | None) -> None:
        made.append(f"remove {repository} but {keep}")

    monkeypatch.setenv("KVCP_CACHE", str(tmp_path))
    monkeypatch.setattr(buildah, "base_image", base_image)
    monkeypatch.setattr(buildah, "bud", bud)
    monkeypatch.setattr(buildah, "push", push)
    monkeypatch.setattr(buildah, "remove", remove)
    return made


def test_an_image_is_built_once(calls: list[str], tmp_path: Path) -> None:
    first = images_build.build("mooncake")
    assert first.archive == tmp_path / "images" / f"mooncake-{first.key}.tar"
    assert calls == [
        f"bud {first.ref} layers=False",
        f"push {first.ref}",
        "remove localhost/kvcachepool/mooncake but None",
    ]
    assert images_build.build("mooncake") == first
    assert len(calls) == 3


def test_only_the_operator_keeps_its_layers(calls: list[str]) -> None:
    """It is small and rebuilt often; the engine's would fill the disk."""
    built = images_build.build("operator")
    assert calls[0] == f"bud {built.ref} layers=True"
    assert calls[-1] == f"remove localhost/kvcachepool/operator but {built.ref}"


def test_a_failed_build_leaves_no_archive(calls: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*arguments: object, layers: bool) -> None:
        raise buildah.BuildError("no space left")

    monkeypatch.setattr(buildah, "bud", fail)
    with pytest.raises(buildah.BuildError, match="no space left"):
        images_build.build("mooncake")
    assert list((tmp_path / "images").glob("*.tar")) == []


def test_old_archives_are_removed_but_the_last_one_before(calls: list[str], tmp_path: Path) -> None:
    directory = tmp_path / "images"
    directory.mkdir()
    for age, name in enumerate(("mooncake-new", "mooncake-old", "mooncake-older", "engine-cpu-oldest")):
        (directory / f"{name}.tar").write_bytes(b"")
        os.utime(directory / f"{name}.tar", (1000 - age, 1000 - age))
    built = images_build.build("mooncake")
    assert {path.name for path in directory.glob("*.tar")} == {
        built.archive.name,
        "mooncake-new.tar",
        "engine-cpu-oldest.tar",
    }


def test_json_names_reference_and_archive(calls: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert images_build.main(["mooncake", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"mooncake"}
    assert report["mooncake"]["ref"] == f"localhost/kvcachepool/mooncake:{load().mooncake}"
    assert Path(report["mooncake"]["archive"]).exists()


def test_all_builds_all(calls: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert images_build.main(["all", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["operator", "mooncake", "engine-cpu"]


def test_arguments_of_a_gpu_variant_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert images_build.main(["--args", "cuda13"]) == 0
    command = capsys.readouterr().out
    assert "--build-arg BASE=vllm/vllm-openai:v" in command
    assert "--build-arg MOONCAKE_WHEEL=mooncake-transfer-engine-cuda13" in command


def test_an_unknown_gpu_variant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert images_build.main(["--args", "cuda11"]) == 1
    assert "there are cuda12, cuda13" in capsys.readouterr().err


def test_a_missing_program_says_how_to_get_it() -> None:
    with pytest.raises(buildah.BuildError, match="apt-get install buildah mmdebstrap"):
        buildah.run(["no-such-program-here"])


def test_a_failed_program_shows_the_end_of_what_it_said() -> None:
    with pytest.raises(buildah.BuildError, match=r"(?s)exited 3.*last words"):
        buildah.run(["sh", "-c", "echo first; echo last words >&2; exit 3"])


def test_the_storage_falls_back_to_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str | Path]) -> str:
        if "overlay" in command:
            raise buildah.BuildError("overlay is not supported")
        return ""

    buildah.storage_options.cache_clear()
    monkeypatch.setattr(buildah, "run", run)
    try:
        assert buildah.storage_options() == ("--storage-driver", "vfs")
    finally:
        buildah.storage_options.cache_clear()


def test_a_root_file_system_is_made_once_and_never_half(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def run(command: Sequence[str | Path], environment: object = None) -> str:
        commands.append([str(word) for word in command])
        Path(command[-1]).write_bytes(b"tar")
        assert not list(tmp_path.glob("*.tar"))
        return ""

    monkeypatch.setattr(buildah, "run", run)
    rootfs = recipe("mooncake", load()).base
    archive = buildah.debian(rootfs, tmp_path)
    assert archive.read_bytes() == b"tar"
    assert buildah.debian(rootfs, tmp_path) == archive
    assert len(commands) == 1
    assert f"--include={','.join(rootfs.packages)}" in commands[0]


def test_cleaning_up_spares_the_layers_of_an_image_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str | Path, ...]] = []

    def record(*arguments: str | Path) -> str:
        commands.append(arguments)
        return ""

    monkeypatch.setattr(buildah, "images", lambda: {"r/a:1", "r/a:2", "r/ab:1"})
    monkeypatch.setattr(buildah, "buildah", record)
    buildah.remove("r/a", keep="r/a:2")
    assert commands == [("rmi", "r/a:1")]
    commands.clear()
    buildah.remove("r/a", keep=None)
    assert sorted(commands) == [("rmi", "--prune"), ("rmi", "r/a:1"), ("rmi", "r/a:2")]
