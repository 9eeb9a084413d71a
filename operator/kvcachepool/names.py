"""Names of children: legal, distinct and the same at every pass.

A pool's name is a DNS subdomain (dots, up to 253 characters); a Service name is a DNS label (63, no
dots) and a StatefulSet adds `-N` and a revision hash to its pods' labels. A name that fits is kept as it
is; any other is cut and gets eight hex digits of the full name, so alike names never meet.
"""

import hashlib
import re

LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_LONGEST_SUFFIX = len("-engine-0123456789ab")
MAX_STEM = 48 - _LONGEST_SUFFIX
"""Room for our suffix, for the 4 characters that a LeaderWorkerSet adds to name its 1000th group, and for the 11 that
the StatefulSet of a group adds (`-` and a 10-character revision)."""
HASHED = re.compile(r"-[0-9a-f]{8}$")
"""How names end that were cut."""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def stem(pool: str) -> str:
    """What the names of a pool's children start with.

    A name that ends as a shortened one would is hashed too, so that it cannot be confused with one.
    """
    if len(pool) <= MAX_STEM and LABEL.match(pool) and not HASHED.search(pool):
        return pool
    cut = re.sub(r"[^a-z0-9-]", "-", pool)[: MAX_STEM - 9].strip("-")
    if not cut or not cut[0].isalpha():
        cut = f"p{cut}"[: MAX_STEM - 9].strip("-")
    return f"{cut}-{_hash(pool)}"


def child(pool: str, suffix: str) -> str:
    """The name of the pool's child `suffix`: `demo` + `master` = `demo-master`.

    No suffix may be the tail of another one (`master`, `store`, `engine-<digest>`, …): then two children
    have one name only if two pools have one stem.
    """
    return f"{stem(pool)}-{suffix}"


def pool_label(pool: str) -> str:
    """The value of the pool label: the pool's name where it is a legal label value, else its stem."""
    return pool if len(pool) <= 63 else stem(pool)
