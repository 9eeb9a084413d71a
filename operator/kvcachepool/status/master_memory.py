"""How much memory the master will need once the pool is full.

Its index holds one entry a key, and a key is one block of one rank: its size is what the pool holds now, divided by its
keys. Measured with mooncake_master 0.3.13.post1: 980 bytes for each key of 109 characters (50,000 to 200,000 keys
alike) on top of 58 MB. Random prompts and small blocks reach tens of millions of keys (Mooncake#3452).
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from kvcachepool.quantity import human_bytes, parse_amount
from kvcachepool.status.context import Context
from kvcachepool.status.text import step

BYTES_PER_KEY: Final = 1024
BASE_BYTES: Final = 64 * 2**20
_ENOUGH_KEYS: Final = 1000
"""Fewer say little about the size of a block: the probe's own are among them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a full pool."""

    keys: int
    """In steps of 1, 2, 5, so that it does not change at every pass."""
    bytes_per_key: int
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.keys} keys × {BYTES_PER_KEY} B + {human_bytes(BASE_BYTES)} = {human_bytes(self.memory)} "
            f"(a key is about {human_bytes(self.bytes_per_key)} of the pool)"
        )


def estimate(context: Context) -> Estimate | None:
    """None as long as the pool holds too little to tell the size of a block."""
    master = context.observed.master
    if context.pool.store.master.external is not None:  # others fill it, too, and its memory is not ours to set
        return None
    if master is None or not master.keys or not master.allocated or master.keys < _ENOUGH_KEYS:
        return None
    size = master.allocated / master.keys
    capacity = context.plan.segment_bytes * context.plan.expected_segments
    if not capacity:
        return None
    full = capacity * float(Decimal(context.pool.store.master.eviction_high_watermark)) / size
    keys = step(full)
    return Estimate(keys, step(size), BASE_BYTES + BYTES_PER_KEY * keys)


def shortage(context: Context) -> str:
    """A sentence when the master's limit is below the estimate; "" otherwise."""
    found, text = estimate(context), context.pool.store.master.resources.limits.get("memory")
    if found is None or text is None or found.memory <= parse_amount(text):
        return ""
    return (
        f"Once the pool is full the master needs about {human_bytes(found.memory)}, but its limit is {text}: {found}. "
        "An OOM kill empties the pool: raise spec.store.master.resources.limits.memory, or spec.schema.blockSize for "
        "fewer keys."
    )
