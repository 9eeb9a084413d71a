"""Hashes that decide whether pods must be replaced."""

import hashlib
import json
from typing import Any


def content_hash(value: Any) -> str:
    """First 16 hex digits of SHA-256 over the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
