"""Which container of a pod is the engine, and what its command line says beside flags. Raw objects in, words out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.schema.flags import CONFIG_FLAG, SWITCHES, flag_name, tokens

Object = Mapping[str, Any]

ENGINE_WORDS: Final = ("vllm", CONFIG_FLAG, "--kv_transfer_config", "--served-model-name")
"""A container of several is an engine if a word of its command line contains one of these."""
ENGINE_IMAGE: Final = "(^|/)[^/]*vllm[^/]*$"
"""Or if the last part of its image matches this."""
SHELL: Final = "^(.*/)?(ba|da|k|z)?sh$"
"""A word that starts a shell: what it runs cannot be read as flags."""
SERVE: Final = "serve"
"""The subcommand of vLLM behind which the model may be a word of its own."""
PROGRAM: Final = "(^|/)vllm$"
"""The program in front of it, where an image's entry point starts another program with it."""
API_SERVER: Final = r"(^|[./])api_server(\.py)?$"
"""The module that serves without a subcommand; it takes a model by `--model` only (vLLM 0.32.0)."""
UNSEEN_MODEL: Final = (
    "its model cannot be told from the command line; give it as the first word (behind serve, if that is there) or by "
    "--model"
)
"""What to do where `model_unseen`."""
NO_CONNECTOR: Final = "none"
"""The schema's connector of an engine that must not have any."""
PREFIXED_CONNECTORS: Final = ("MooncakeStoreConnector",)
"""Connectors whose keys other pods can meet, and which therefore need the digest as `cache_prefix`."""


def words(container: Object) -> tuple[str, ...]:
    """Command and arguments. An image's own entry point is not seen."""
    return (*(container.get("command") or ()), *(container.get("args") or ()))


def engine_containers(pod: Object) -> Sequence[Object]:
    """The engine containers: the one that the annotation names, the only one, or those that look like engines."""
    containers: Sequence[Object] = pod["spec"].get("containers") or ()
    named = (pod["metadata"].get("annotations") or {}).get(constants.ANNOTATION_CONTAINER, "")
    if named:
        return [c for c in containers if c["name"] == named]
    return containers if len(containers) == 1 else [c for c in containers if looks_like_engine(c)]


def looks_like_engine(container: Object) -> bool:
    """Whether command line or image say so."""
    hit = any(part in word for word in words(container) for part in ENGINE_WORDS)
    return hit or re.search(ENGINE_IMAGE, container.get("image", "")) is not None


def starts_a_shell(container: Object) -> bool:
    """Whether a shell interprets the command line."""
    return any(re.search(SHELL, word) for word in words(container))


def models(command_line: Sequence[str], *, bare: bool) -> tuple[str, ...]:
    """Models that a command line is sure to name: by `--model`, or as a word of its own, which is the first word of the
    engine's arguments or follows a flag that takes no further word. `bare`: the image brings the command.

    A word behind any other flag may be that flag's value, whose number only the engine's parser knows.
    """
    line = tuple(command_line)
    given = [value for name, value in tokens(line) if name == "--model" and value]
    begin = _begin(line, bare=bare)
    if begin is None or (begin > 0 and line[begin - 1] != SERVE):
        return tuple(given)  # the API server's module ignores a word
    return (*given, *(w for i, w in enumerate(line) if i >= begin and not flag_name(w) and _free(line, i, begin)))


def named_models(command_line: Sequence[str], *, bare: bool) -> tuple[str, ...]:
    """Those of `models` that are no paths: what lies at a path is not seen, and has no revision."""
    return tuple(model for model in models(command_line, bare=bare) if model[:1] not in {".", "/"})


def model_argument(command_line: Sequence[str], *, bare: bool) -> str:
    """The first of `models`; empty when there is none."""
    return next(iter(models(command_line, bare=bare)), "")


def model_unseen(command_line: Sequence[str], *, bare: bool) -> bool:
    """Whether an engine's arguments name no model that could be told: it would be the image's, the engine's own default
    or a word that may also be the value of a flag. Of an unknown program nothing is said."""
    return _begin(tuple(command_line), bare=bare) is not None and not models(command_line, bare=bare)


def _free(line: tuple[str, ...], index: int, begin: int) -> bool:
    before = line[index - 1]
    return index == begin or (flag_name(before) != "" and ("=" in before or flag_name(before) in SWITCHES))


def _begin(line: tuple[str, ...], *, bare: bool) -> int | None:
    """Where the engine's own arguments begin; None where that cannot be told."""
    if not (bare and line and line[0].startswith("-")):
        for index, word in enumerate(line):
            before = line[index - 1] if index else ""
            known = bool(re.search(PROGRAM, before)) if bare else not before.startswith("-")
            if (word == SERVE and (index == 0 or known)) or re.search(API_SERVER, word):
                return index + 1
    return 0 if bare else None
