"""Memory of a pod as a sum that can be shown."""

from dataclasses import dataclass

from kvcachepool.quantity import format_bytes


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: `count` × `size` bytes of `what`."""

    what: str
    size: int
    count: int = 1

    def __str__(self) -> str:
        times = f"{self.count} × " if self.count != 1 else ""
        return f"{times}{self.what} {format_bytes(self.size)}"


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a container needs at least."""

    terms: tuple[Term, ...]

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(term.size * term.count for term in self.terms)

    def __str__(self) -> str:
        return f"{' + '.join(str(term) for term in self.terms)} = {format_bytes(self.total)}"
