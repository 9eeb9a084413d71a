"""YAML of others: bounded in size, and never anything but documents or a DocumentError."""

from typing import Any, Final

import yaml

MAX_CHARACTERS: Final = 256 * 1024
"""The parser reads about 100 KB a second and holds the event loop meanwhile; what is read here has a few KB."""


class DocumentError(ValueError):
    """It cannot be read. Says what and where, without the line itself, which may hold a secret."""


def load(text: str) -> list[Any]:
    """All documents that are not empty. Raises DocumentError."""
    if len(text) > MAX_CHARACTERS:
        raise DocumentError(f"{len(text)} characters, expected at most {MAX_CHARACTERS}")
    try:
        return [document for document in yaml.safe_load_all(text) if document]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "characters that YAML does not know"
        raise DocumentError(f"not YAML: {problem[:200]}{where}") from error
    except RecursionError:
        raise DocumentError("not YAML: nested too deeply") from None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError):
        # what the library makes of dates, numbers and keys that look so and are none
        raise DocumentError("not YAML: a date, number or key that is none") from None
