"""Images that differ from another in a file."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from e2e.cluster.images import inspect, write_scratch_image
from e2e.harness.variants import derive


def blob(archive: Path, digest: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert file is not None
        return file.read()


def document(archive: Path, digest: str) -> Any:
    return json.loads(blob(archive, digest))


def test_a_variant_is_the_base_and_one_layer(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"base")
    base, made = tmp_path / "base.tar", tmp_path / "made.tar"
    write_scratch_image(base, "localhost/base:1", {"/program": program}, ["/program"])
    derive(base, made, "localhost/made:1", {"/opt/new": b"data", "/usr/lib/gone.so.1": None})
    assert inspect(made).names == ("localhost/made:1",)
    digests = [inspect(archive).digest for archive in (base, made)]
    assert None not in digests
    former, manifest = document(base, str(digests[0])), document(made, str(digests[1]))
    *before, added = manifest["layers"]
    assert before == former["layers"]
    config = document(made, manifest["config"]["digest"])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["config"] == document(base, former["config"]["digest"])["config"]
    with tarfile.open(fileobj=io.BytesIO(blob(made, added["digest"]))) as layer:
        assert sorted(layer.getnames()) == ["opt/new", "usr/lib/.wh.gone.so.1"]
        file = layer.extractfile("opt/new")
        assert file is not None
        assert file.read() == b"data"
    derive(base, tmp_path / "again.tar", "localhost/made:1", {"/opt/new": b"data", "/usr/lib/gone.so.1": None})
    assert (tmp_path / "again.tar").read_bytes() == made.read_bytes()
