"""Nodes of the cluster as facts, fed by a watch and by relists.

Of a node only what decides placement is kept, so that thousands of them are small, and a heartbeat, which changes
nothing of that, is no news.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kvcachepool.facts import NodeFacts, version_number
from kvcachepool.observe.nodes import node_facts


class NodeCache:
    """All nodes, or the knowledge that they may not be read."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, NodeFacts]] = {}
        self._gone: set[str] = set()
        """Uids removed since the last relist began to count: a list that was on its way must not bring them back."""
        self._known: tuple[NodeFacts, ...] | None = None
        """None until there is a complete list: what the watch brings before is kept, but is not all nodes."""

    @property
    def facts(self) -> tuple[NodeFacts, ...] | None:
        """All nodes by name; None when they cannot be read."""
        return self._known

    def event(self, change: str | None, raw: Mapping[str, Any]) -> bool:
        """Takes a watch event; says whether something of interest changed."""
        if change == "DELETED":
            self._gone.add(raw["metadata"].get("uid", ""))
            removed = self._nodes.pop(raw["metadata"]["name"], None)
            changed = removed is not None
        else:
            changed = self._put(raw)
        return self._known is not None and self._publish(changed)

    def replace(self, raws: Iterable[Mapping[str, Any]], version: str) -> bool:
        """Takes a complete list made at `version`; says whether something of interest changed.

        What is not in it and not newer than it is gone.
        """
        changed = False
        names = set()
        for raw in raws:
            if raw["metadata"].get("uid", "") in self._gone:
                continue
            names.add(raw["metadata"]["name"])
            changed |= self._put(raw)
        limit = version_number(version)
        for name in [name for name, (known, _) in self._nodes.items() if name not in names and known <= limit]:
            del self._nodes[name]
            changed = True
        self._gone.clear()
        return self._publish(changed)

    def forbid(self) -> bool:
        """The nodes may not be read; says whether that is news."""
        known, self._known = self._known, None
        self._nodes.clear()
        return known is not None

    def _put(self, raw: Mapping[str, Any]) -> bool:
        number = version_number(raw["metadata"].get("resourceVersion", ""))
        old = self._nodes.get(raw["metadata"]["name"])
        if old is not None and number >= 0 and number < old[0]:
            return False
        facts = node_facts(raw)
        self._nodes[facts.name] = (number, facts)
        return old is None or old[1] != facts

    def _publish(self, changed: bool) -> bool:
        if changed or self._known is None:
            self._known = tuple(self._nodes[name][1] for name in sorted(self._nodes))
            return True
        return False
