"""Which container of a pod is the engine, and what its command line says beside flags. Raw objects in, words out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.schema.flags import tokens

Object = Mapping[str, Any]

ENGINE_WORDS: Final = ("vllm", "--kv-transfer-config", "--kv_transfer_config", "--served-model-name")
"""A container of several is an engine if a word of its command line contains one of these."""
ENGINE_IMAGE: Final = "(^|/)[^/]*vllm[^/]*$"
"""Or if the last part of its image matches this."""
SHELL: Final = "^(.*/)?(ba|da|k|z)?sh$"
"""A word that starts a shell: what it runs cannot be read as flags."""
CONFIG_FLAG: Final = "--kv-transfer-config"
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


def model_argument(command_line: Sequence[str], *, bare: bool) -> str:
    """The model that a command line names: `--model`, the word after `serve`, or, where the image brings the command
    (`bare`), the first word; empty when it is left to the image."""
    given = dict(tokens(tuple(command_line))).get("--model")
    if given:
        return given
    for index, word in enumerate(command_line):
        if not word.startswith("-") and (command_line[index - 1] == "serve" if index else bare and word != "serve"):
            return word
    return ""
