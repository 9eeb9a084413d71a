"""One canonical form of everything that must be identical in every member of a pool.

Why a digest of all of it: the engine's own keys leave out most of these fields, and a mismatch then is a
hit with wrong bytes, without an error. The digest is part of every key (`cache_prefix`), so a stray engine
misses instead.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvcachepool.schema.values import Value, canonical

DIGEST_LENGTH: Final = 12


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs; `expected` is the pool's value."""

    field: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.field} is {self.actual}, the pool has {self.expected}"


@dataclass(frozen=True, slots=True)
class CacheSchema:
    """Field name (camelCase, as the user writes it) to value. None means: the engine's own choice.

    Fields that are None are left out of the canonical form, so that a field added by a later operator
    changes no digest of a pool that does not use it.
    """

    fields: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Value]) -> "CacheSchema":
        """Normalises aliases and order."""
        values = ((name, canonical(name, value)) for name, value in fields.items())
        return cls(tuple(sorted((name, value) for name, value in values if value is not None)))

    @property
    def canonical(self) -> str:
        """JSON with sorted keys and no white space, ASCII only."""
        return json.dumps(dict(self.fields), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @property
    def digest(self) -> str:
        """First 12 hex digits of SHA-256 over the canonical form."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:DIGEST_LENGTH]

    @property
    def texts(self) -> dict[str, str]:
        """Every field as it stands on a command line."""
        return {name: str(value) for name, value in self.fields}

    def get(self, name: str) -> Value:
        """The field's value, or None."""
        return dict(self.fields).get(name)

    def diff(self, actual: "CacheSchema") -> tuple[Difference, ...]:
        """Fields in which `actual` differs from this (expected) schema, by name."""
        mine, other = dict(self.fields), dict(actual.fields)
        return tuple(
            Difference(name, _show(mine.get(name)), _show(other.get(name)))
            for name in sorted(mine.keys() | other.keys())
            if mine.get(name) != other.get(name)
        )


def _show(value: Value) -> str:
    return "unset" if value is None else str(value)
