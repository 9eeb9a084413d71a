"""Engine pods, written in other ways."""

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Change = Callable[[Json], object]


def edited(pod: Json, edit: Change) -> Json:
    edit(pod)
    return pod


def first(pod: Json) -> Json:
    container: Json = pod["spec"]["containers"][0]
    return container


def flags(pod: Json) -> list[str]:
    """The engine's arguments but for the model."""
    return [word for word in first(pod)["args"] if not word.startswith("--model=")]


def line(pod: Json, command: list[str] | None, args: list[str]) -> None:
    first(pod).update(command=command, args=args)
