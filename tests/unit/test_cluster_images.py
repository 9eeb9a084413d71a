"""Archives of images."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster.images import inspect, write_scratch_image


def _write(archive: Path, program: Path) -> None:
    write_scratch_image(archive, "localhost/p:1", {"/p": program}, ["/p"])


def test_same_program_gives_the_same_digest(tmp_path: Path) -> None:
    program = tmp_path / "p"
    program.write_bytes(b"\x7fELF")
    _write(tmp_path / "a.tar", program)
    _write(tmp_path / "b.tar", program)
    assert inspect(tmp_path / "a.tar") == inspect(tmp_path / "b.tar")
    program.write_bytes(b"\x7fELF other")
    _write(tmp_path / "b.tar", program)
    assert inspect(tmp_path / "a.tar").digest != inspect(tmp_path / "b.tar").digest


def test_the_layer_holds_an_executable(tmp_path: Path) -> None:
    program = tmp_path / "p"
    program.write_bytes(b"\x7fELF")
    _write(tmp_path / "a.tar", program)
    with tarfile.open(tmp_path / "a.tar") as tar:

        def blob(digest: str) -> bytes:
            file = tar.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
            assert file is not None
            return file.read()

        manifest = json.loads(blob(inspect(tmp_path / "a.tar").digest or ""))
        config = json.loads(blob(manifest["config"]["digest"]))
        layer = blob(manifest["layers"][0]["digest"])
    assert config["config"]["Entrypoint"] == ["/p"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        member = files.getmember("p")
        assert member.mode == 0o755
        assert member.size == 4


def test_docker_archives_tell_their_names(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "d.tar", "w") as tar:
        data = json.dumps([{"Config": "c", "RepoTags": ["localhost/x:1"], "Layers": []}]).encode()
        member = tarfile.TarInfo("manifest.json")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    contents = inspect(tmp_path / "d.tar")
    assert contents.names == ("localhost/x:1",)
    assert contents.digest is None


def test_other_archives_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "o.tar", "w"):
        pass
    with pytest.raises(ValueError, match="neither"):
        inspect(tmp_path / "o.tar")
