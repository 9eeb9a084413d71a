"""Nodes against the needs of a pool: which fit, which build they get, and why the others do not.

A build and a product that run are kept while they fit any node, so that neither a new node nor a newer operator
replaces engines.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from kvcachepool.facts import NodeFacts
from kvcachepool.hardware import labels
from kvcachepool.hardware.need import Need
from kvcachepool.hardware.stages import STAGES, Objection, objection


@dataclass(frozen=True, slots=True)
class Fit:
    """How the nodes meet one need."""

    need: Need
    fitting: tuple[NodeFacts, ...]
    excluded: tuple[tuple[Objection, str], ...]
    """(objection, node name)."""

    @property
    def total(self) -> int:
        """All nodes."""
        return len(self.fitting) + len(self.excluded)

    @property
    def reason(self) -> str:
        """Reason of the nodes that got furthest."""
        furthest = max((o.stage for o, _ in self.excluded), default=0)
        return STAGES[furthest].reason

    @property
    def room(self) -> int:
        """How many such pods the fitting nodes hold together, where nothing else runs there."""
        return sum(_room(self.need, node) for node in self.fitting)

    @property
    def products(self) -> Counter[str]:
        """Fitting nodes by GPU product; those without the label are left out."""
        names = (labels.product(node.labels) for node in self.fitting)
        return Counter(name for name in names if name)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One build that engines could get."""

    need: Need
    """The engine's need with that build."""
    image: str
    cuda: str
    """CUDA of the build; "" where it does not matter."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The build and product that the engines get, remembered on their Deployment."""

    image: str
    cuda: str = ""
    product: str = ""


@dataclass(frozen=True, slots=True)
class EngineMatch:
    """The outcome for engines."""

    choice: Choice
    fit: Fit | None
    """None when nodes cannot be read."""
    mixed: tuple[tuple[str, int], ...] = ()
    """(product, nodes) when fitting nodes have several and nothing says which."""
    pods: int = 1
    """Pods of one engine."""

    @property
    def placeable(self) -> bool:
        """Whether engines can be made."""
        return self.fit is None or (self.fit.room >= self.pods and not self.mixed)


@dataclass(frozen=True, slots=True)
class HardwareMatch:
    """What the nodes can run of a pool."""

    engine: EngineMatch
    need: Need
    """The engine's, with the chosen build and product."""
    others: tuple[Fit, ...] = ()
    """Store and master; empty when nodes cannot be read."""
    nodes: int | None = None
    """How many nodes there are; None when they cannot be read."""


def fit(need: Need, nodes: Iterable[NodeFacts], hosting: Collection[str] = ()) -> Fit:
    """Sorts the nodes."""
    fitting, excluded = [], []
    for node in nodes:
        against = objection(need, node, hosting)
        if against is None:
            fitting.append(node)
        else:
            excluded.append((against, node.name))
    return Fit(need, tuple(fitting), tuple(excluded))


def match_engines(
    candidates: Sequence[Candidate],
    nodes: Sequence[NodeFacts] | None,
    *,
    running: Choice | None = None,
    hosting: Collection[str] = (),
    one_product: bool = False,
    pods: int = 1,
) -> EngineMatch:
    """`candidates` are the builds to choose from, the newest first (at least one). With `one_product` all engines must
    get the same GPU, and the product of `running` is kept. `pods` is how many make an engine."""
    kept = running.product if running is not None and one_product else ""
    if kept:
        candidates = [_of_product(c, kept) for c in candidates]
    preferred = [c for c in candidates if running is not None and c.cuda == running.cuda]
    if nodes is None:
        chosen = (preferred or candidates)[0]
        return EngineMatch(Choice(chosen.image, chosen.cuda, chosen.need.product), None)
    fits = [(candidate, fit(candidate.need, nodes, hosting)) for candidate in candidates]
    chosen, best = _choose(fits, [c.cuda for c in preferred], pods)
    products = best.products
    product = chosen.need.product
    if one_product and not product:
        if len(products) > 1:  # also under engines that run: they can be on any of these nodes
            mixed = tuple(sorted(products.items()))
            return EngineMatch(Choice(chosen.image, chosen.cuda), best, mixed, pods)
        if running is None:  # what runs was not told to stay on that product
            product = next(iter(products), "")
    return EngineMatch(Choice(chosen.image, chosen.cuda, product), best, pods=pods)


def _choose(fits: Sequence[tuple[Candidate, Fit]], preferred: Collection[str], pods: int) -> tuple[Candidate, Fit]:
    """What runs while it fits; else the newest that fits wherever any does; else what fits most nodes."""
    for candidate, found in fits:
        if candidate.cuda in preferred and found.room >= pods:
            return candidate, found
    best = max(len(found.fitting) for _, found in fits)
    if best == 0:  # the oldest build asks for least: what stands against it stands against all
        return fits[0][0], fits[-1][1]
    return next(f for f in fits if len(f[1].fitting) == best)


def _room(need: Need, node: NodeFacts) -> int:
    shares = [int(node.allocatable.get(name, 0) // amount) for name, amount in need.requests.items() if amount]
    return 1 if need.alone else min(shares, default=1)


def _of_product(candidate: Candidate, product: str) -> Candidate:
    return replace(candidate, need=replace(candidate.need, product=candidate.need.product or product))
