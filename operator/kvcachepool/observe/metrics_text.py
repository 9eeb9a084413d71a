"""The few samples we want out of a Prometheus text page.

Lines of other metrics are dropped before the library's parser sees them: of an engine's page (600 to 2,000 lines,
50 to 200 KB) some thirty lines are of interest. Parsing a real page of 52 KB whole takes 8 ms of the event loop, this
way 1 ms, and it is done for every engine at every pass.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_MAX_LINE: Final = 16 * 1024
_MAX_LINES: Final = 5000
_LARGEST: Final = 2.0**62
"""More than any counter or size reaches. Sums of what is larger could be infinite, which no status can hold."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the page."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted part of a metrics page. `declared` has every metric name that a `# TYPE` line announces: a labelled
    counter that nothing has counted yet has no sample, but it is declared."""

    samples: tuple[Sample, ...]
    declared: frozenset[str]

    def total(self, name: str) -> float | None:
        """Sum over all label sets; None when the metric is absent."""
        found = [sample.value for sample in self.samples if sample.name == name]
        return sum(found) if found else None


def parse_page(text: str, wanted: Callable[[str], bool]) -> Page | None:
    """Samples whose name is wanted, with values that a counter can have. None when the text is no metrics page."""
    lines: list[str] = []
    declared: set[str] = set()
    for line in text.split("\n"):
        if len(line) > _MAX_LINE:
            continue
        if line.startswith("#"):
            words = line.split(maxsplit=3)
            if len(words) > 2 and words[1] == "TYPE" and wanted(words[2]):
                declared.add(words[2])
            continue
        name = line.partition("{")[0].partition(" ")[0]
        if name and wanted(name) and len(lines) < _MAX_LINES:
            lines.append(line)
    try:
        samples = tuple(_samples("\n".join(lines) + "\n"))
    except (ValueError, IndexError, KeyError, AttributeError, TypeError):
        return None  # the library raises whatever its slicing meets on malformed lines
    return Page(samples, frozenset(declared))


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            try:
                value = float(sample.value)
            except OverflowError:  # the library gives whole numbers of any length
                continue
            if abs(value) <= _LARGEST:  # not so for what is no number
                yield Sample(sample.name, sample.labels, value)
