"""preStop of a store pod: moves its blocks to other members before it goes.

Arguments: the master's HTTP address (host:port) and the most seconds to take; the pod's own address is in
MOONCAKE_LOCAL_HOSTNAME. Whatever fails, the pod goes all the same: what was not moved is computed again.

Source: mooncake_master 0.3.13.post1. POST /api/v1/drain_jobs {"segments": [names], "max_concurrency": n} makes a
segment DRAINING at once: it is read from, but gets no new blocks. GET /api/v1/drain_jobs/query?job_id= has progress.
The leaving member moves the blocks itself; it looks for work once a second (measured: 16 blocks/s). A job cannot be
cancelled once it runs, without room elsewhere it runs for ever, and a member that ends meanwhile aborts, so that its
segment is listed, and read in vain, until clientTtl. So a drain begins only where it can be finished.
"""

import json
import os
import sys
import time
import urllib.request
from typing import Any

CONCURRENCY = 64
BLOCKS_PER_SECOND = 12
ROOM = 0.9
"""Share of the others' free memory that may be filled."""
TIMEOUT = 5
STALLED_SECONDS = 15


def fetch(address: str, path: str, body: Any = None) -> str:
    """What the master answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", data)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
        return str(answer.read(16 * 1024 * 1024), "utf-8", "replace")


def metric(page: str, name: str) -> float:
    """The value of a metric without labels; 0 when it is absent."""
    return next((float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"{name} ")), 0.0)


def host(segment: Any) -> str:
    """Of its member."""
    return str(segment.get("te_endpoint", "")).rpartition(":")[0].strip("[]")


def why_not(own: list[Any], others: list[Any], page: str, seconds: float) -> str:
    """Why moving is not begun; "" when it is worth it."""
    used = sum(s.get("allocator_used_bytes", 0) for s in own)
    free = sum(s.get("size_bytes", 0) - s.get("allocator_used_bytes", 0) for s in others)
    if not used:
        return "no blocks here"
    if used > ROOM * free:
        return f"{used} bytes here, {free} bytes free elsewhere"
    allocated = metric(page, "master_allocated_bytes")
    blocks = metric(page, "master_key_count") * used / allocated if allocated else 0.0
    needed = blocks / BLOCKS_PER_SECOND
    return f"moving about {blocks:.0f} blocks takes {needed:.0f} s, allowed are {seconds:.0f} s" * (needed > seconds)


def drain(address: str, own_host: str, seconds: float) -> str:
    """Moves what is here, if it can; gives a sentence for the log."""
    deadline = time.monotonic() + seconds
    listed = json.loads(fetch(address, "/get_segments_detail")).get("segments", ())
    usable = [s for s in listed if s.get("status") == "OK"]
    own = [s for s in usable if host(s) == own_host]
    others = [s for s in usable if host(s) != own_host]
    obstacle = why_not(own, others, fetch(address, "/metrics"), seconds)
    if obstacle:
        return f"not drained: {obstacle}"
    order = {"segments": [s["segment_name"] for s in own], "max_concurrency": CONCURRENCY}
    job = json.loads(fetch(address, "/api/v1/drain_jobs", order))
    state, moved, since = job, -1, time.monotonic()
    while state.get("status_name", "CREATED") in {"CREATED", "RUNNING"}:
        now = time.monotonic()
        if now >= deadline or now - since >= STALLED_SECONDS:
            break
        time.sleep(1)
        state = json.loads(fetch(address, f"/api/v1/drain_jobs/query?job_id={job['job_id']}"))
        if state.get("succeeded_units") != moved:
            moved, since = state.get("succeeded_units"), now
    return f"{moved} blocks moved: {state.get('status_name')}, {state.get('message')}"


if __name__ == "__main__":
    try:
        print(drain(sys.argv[1], os.environ["MOONCAKE_LOCAL_HOSTNAME"], float(sys.argv[2])))
    except Exception as error:
        print(f"not drained: {error}")
