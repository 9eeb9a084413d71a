"""What goes into an image, and that only that decides whether it is built again."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from images import locks
from images.pins import REPOSITORY, load, parse
from images.recipe import NAMES, RootFs, cuda_arguments, cuda_tag, recipe

PINS = load()
DOCKERFILES = sorted((REPOSITORY / "images").glob("*/Dockerfile"))


def _arguments(dockerfile: Path) -> set[str]:
    return set(re.findall(r"^ARG (\w+)", dockerfile.read_text(), re.MULTILINE))


def _locked(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_is_one_the_dockerfile_takes(name: str) -> None:
    chosen = recipe(name, PINS)
    assert set(chosen.arguments) | {"BASE", "BUILD_BASE"} <= _arguments(REPOSITORY / chosen.dockerfile)


@pytest.mark.parametrize("name", NAMES)
def test_everything_a_dockerfile_copies_is_in_the_key(name: str) -> None:
    chosen = recipe(name, PINS)
    text = (REPOSITORY / chosen.dockerfile).read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    for source in copied:
        assert any(source == s or source.startswith(f"{s}/") for s in chosen.sources), source


def test_references_name_what_is_inside() -> None:
    assert recipe("mooncake", PINS).reference("k") == f"localhost/kvcachepool/mooncake:{PINS.mooncake}"
    assert recipe("engine-cpu", PINS).reference("k") == f"localhost/kvcachepool/vllm-mooncake:{PINS.cpu_engine}-cpu"
    assert recipe("operator", PINS).reference("0123456789ab") == "localhost/kvcachepool/operator:0123456789ab"


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="operator, mooncake, engine-cpu"):
        recipe("engine", PINS)


@pytest.mark.parametrize("major", sorted(PINS.cuda))
def test_a_gpu_variant_takes_the_wheel_of_its_cuda(major: str) -> None:
    arguments = cuda_arguments(major, PINS)
    assert arguments["CUDA"].split(".")[0] == major
    assert arguments["MOONCAKE_WHEEL"] == PINS.mooncake_wheels[major]
    assert arguments["BASE"].split(":")[1].startswith(f"v{PINS.engine}")
    assert set(arguments) <= _arguments(REPOSITORY / "images/vllm-mooncake/Dockerfile")
    assert cuda_tag(major, PINS).startswith(PINS.engine)


def test_master_client_and_engine_have_the_same_mooncake() -> None:
    """Version skew between them is silent at run time."""
    wheel = PINS.mooncake_wheels["cpu"]
    assert _locked(locks.MOONCAKE)[wheel] == PINS.mooncake
    assert _locked(locks.ENGINE)[wheel] == PINS.mooncake
    assert {cuda_arguments(major, PINS)["MOONCAKE_VERSION"] for major in PINS.cuda} == {PINS.mooncake}


def test_the_engine_lock_follows_the_pins() -> None:
    locked = _locked(locks.ENGINE)
    for requirement in (*locks.engine_requirements(PINS), *PINS.overrides):
        name, version = requirement.split("==")
        assert locked[name] == version
    assert not set(locked) & set(PINS.excludes)
    assert len([name for name in locked if name.startswith("mooncake-transfer-engine")]) == 1


@pytest.mark.parametrize("path", [locks.MOONCAKE, locks.ENGINE], ids=["mooncake", "engine"])
def test_every_locked_wheel_has_a_hash(path: Path) -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", path.read_text(), flags=re.MULTILINE)[1:]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_images_run_as_a_user_and_start_without_a_shell(dockerfile: Path) -> None:
    final = dockerfile.read_text().rsplit("\nFROM ", 1)[1]
    assert re.search(r"^USER 65532:65532$", final, re.MULTILINE)
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.+)$", final, re.MULTILINE)
    assert entrypoint.startswith('["')
    assert "sh" not in re.findall(r'"([^"]+)"', entrypoint)
    assert not re.search(r"^CMD [^[]", final, re.MULTILINE)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_images_say_what_they_hold(dockerfile: Path) -> None:
    final = dockerfile.read_text().rsplit("\nFROM ", 1)[1]
    expected = {"org.opencontainers.image.title", "org.opencontainers.image.version"}
    if dockerfile.parent.name != "operator":
        expected |= {"io.kvcachepool.cuda", "io.kvcachepool.mooncake-version"}
    if dockerfile.parent.name == "vllm-mooncake":
        expected.add("io.kvcachepool.engine-version")
    assert expected <= set(re.findall(r"([\w.-]+)=\"", final))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The parts of the repository that the recipes read."""
    for directory in ("images", "operator", "requirements"):
        shutil.copytree(REPOSITORY / directory, tmp_path / directory, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_changed_source_changes_the_keys_of_its_images_only(copy: Path) -> None:
    before = {name: recipe(name, PINS).key(copy) for name in NAMES}
    with (copy / "operator" / "kvcachepool" / "__init__.py").open("a") as file:
        file.write("# changed\n")
    after = {name: recipe(name, PINS).key(copy) for name in NAMES}
    assert {name for name in NAMES if before[name] != after[name]} == {"operator"}


def test_byte_code_and_unrelated_files_do_not_change_a_key(copy: Path) -> None:
    before = {name: recipe(name, PINS).key(copy) for name in NAMES}
    (copy / "operator" / "kvcachepool" / "__pycache__").mkdir()
    (copy / "operator" / "kvcachepool" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (copy / "images" / "other.py").write_text("x = 1\n")
    assert {name: recipe(name, PINS).key(copy) for name in NAMES} == before


@pytest.mark.parametrize("change", [{"mooncake": "9.9.9"}, {"uv": "9.9.9"}, {"debian": "trixie"}])
def test_a_changed_pin_changes_the_key(change: dict[str, str]) -> None:
    assert recipe("mooncake", PINS).key() != recipe("mooncake", replace(PINS, **change)).key()  # type: ignore[arg-type]


def test_a_root_file_system_is_named_by_its_packages_in_any_order() -> None:
    assert RootFs("bookworm", ("a", "b")).key == RootFs("bookworm", ("b", "a")).key
    assert RootFs("bookworm", ("a", "b")).key != RootFs("bookworm", ("a",)).key


def test_a_registry_prefixes_every_image() -> None:
    text = (REPOSITORY / "operator/kvcachepool/compat/pins.yaml").read_text()
    pins = parse(text.replace('registry: ""', 'registry: "registry.example/"'))
    assert recipe("mooncake", pins).repository == "registry.example/kvcachepool/mooncake"
