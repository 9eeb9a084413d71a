"""Programs that run inside pods, by the image's own Python: standard library only, and nothing of this package."""

from functools import cache
from importlib import resources


@cache
def source(name: str) -> str:
    """The text of one of them, for `python3 -c`."""
    return resources.files("kvcachepool.podscripts").joinpath(f"{name}.py").read_text(encoding="utf-8")
