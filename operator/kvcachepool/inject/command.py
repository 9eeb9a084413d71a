"""Flags of the engine: what is missing is added, what contradicts the pool is refused."""

import json
from collections.abc import Iterator, Sequence

from kvcachepool.backends.base import EngineParts
from kvcachepool.inject.refusal import InjectionRefusedError
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.flags import (
    CONFIG_FLAG,
    HIDDEN,
    SCHEMA_FLAGS,
    abbreviated,
    hidden,
    refusal,
    schema_flag,
    tokens,
)
from kvcachepool.schema.member import UNSEEN_MODEL, Object, model_unseen, named_models, starts_a_shell, words
from kvcachepool.schema.values import canonical

_PLAIN = ("--enable-prefix-caching", "--enable-prompt-tokens-details")
"""Switches that every engine of a pool has."""


def missing_flags(container: Object, schema: CacheSchema, parts: EngineParts) -> list[str]:
    """Words to put behind the container's arguments. Raises InjectionRefusedError."""
    name = container["name"]
    _check_form(container)
    line = words(container)
    given = [(flag, value) for flag, value in tokens(line)]
    bare = not container.get("command")
    named = named_models(line, bare=bare)
    problems = [*_problems(given, schema, parts, named), *(f"{word} {HIDDEN}" for word in hidden(line))]
    if model_unseen(line, bare=bare):
        problems.append(UNSEEN_MODEL)
    if problems:
        raise InjectionRefusedError(
            f"container {name}: {'; '.join(problems)}. Remove what differs (the rest is added), or change the pool"
        )
    seen = {flag.name if (flag := schema_flag(text)) else text for text, _ in given}
    added: list[str] = []
    for flag in SCHEMA_FLAGS:
        value = schema.get(flag.field)
        if flag.name in seen or value is None:
            continue
        if flag.field == "modelRevision" and not named:
            continue  # a path has none, and what another program serves is not seen
        if flag.field == "interleave" and value == 1:
            continue  # an engine without context parallelism warns of it
        added += flag.render(value)
    switches = [*_PLAIN, *(["--enable-lora"] if schema.get("loraModules") else [])]
    added += [switch for switch in switches if switch not in seen]
    if CONFIG_FLAG not in seen and parts.kv_transfer_config is not None:
        added.append(f"{CONFIG_FLAG}={json.dumps(parts.kv_transfer_config, sort_keys=True)}")
    return added


def _check_form(container: Object) -> None:
    name, line = container["name"], words(container)
    if not line:
        raise InjectionRefusedError(
            f"container {name} has neither command nor args, and what its image would run cannot be seen. "
            "Give args, at least the model"
        )
    if starts_a_shell(container):
        raise InjectionRefusedError(
            f"container {name} starts through a shell ({line[0]}), whose text cannot be edited safely. "
            'Give command and args as lists, such as command: ["vllm", "serve"] and args: ["MODEL", "--port=8000"]'
        )
    if "--" in line and not any("vllm" in word for word in line[line.index("--") :]):
        raise InjectionRefusedError(f"container {name} has a bare -- in its arguments; flags behind it are not read")


def _problems(
    given: Sequence[tuple[str, str | None]], schema: CacheSchema, parts: EngineParts, named: Sequence[str]
) -> Iterator[str]:
    for name, text in given:
        flag = schema_flag(name)
        if flag is not None:
            wanted = schema.get(flag.field)
            wanted = flag.default if wanted is None else wanted
            actual = canonical(flag.field, flag.read(name, text))
            if actual != wanted:
                yield f"{flag.field} ({name}) is {_show(actual)}, the pool has {_show(wanted)}"
        elif name.startswith(f"{CONFIG_FLAG}."):
            yield f"{name} is the user's own, the pool brings {CONFIG_FLAG}"
        elif refusal(name):
            yield f"{name} is not allowed: {refusal(name)}"
        elif abbreviated(name):
            yield f"{name} abbreviates {abbreviated(name)}; write flags in full"
        elif name == CONFIG_FLAG and not _same_json(text, parts.kv_transfer_config):
            pools = "another one" if parts.kv_transfer_config else "none"
            yield f"{CONFIG_FLAG} is the user's own, the pool has {pools}"
    for model in named:
        if model != schema.get("modelId"):
            yield f"modelId is {model}, the pool has {schema.get('modelId')}"


def _show(value: object) -> str:
    return "unset" if value is None else str(value)


def _same_json(text: str | None, wanted: object) -> bool:
    try:
        return bool(json.loads(text or "") == wanted)
    except ValueError:
        return False
