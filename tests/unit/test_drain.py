"""The program that moves a store pod's blocks away, against a master of canned answers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from kvcachepool.podscripts import drain

METRICS = "# HELP x\nmaster_key_count 100\nmaster_allocated_bytes 1000\n"


def segment(host: str, used: int = 500, status: str = "OK") -> dict[str, Any]:
    return {
        "segment_name": f"{host}:12000",
        "te_endpoint": f"{host}:15000",
        "size_bytes": 1000,
        "allocator_used_bytes": used,
        "status": status,
    }


@contextmanager
def master(segments: list[dict[str, Any]], state: Callable[[int], dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """(address, requests that came)."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, document: Any) -> None:
            text = document if isinstance(document, str) else json.dumps(document)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            requests.append(self.path)
            if self.path == "/get_segments_detail":
                self._answer({"segments": segments})
            elif self.path == "/metrics":
                self._answer(METRICS)
            else:
                self._answer(state(sum("query" in request for request in requests)))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            requests.append(f"{self.path} {body}")
            self._answer({"success": True, "job_id": "1-2", "status": "CREATED"})

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(drain.time, "sleep", lambda _: None)
    monkeypatch.setattr(drain.time, "monotonic", lambda: float(next(clock)))


def done_after(looks: int) -> Callable[[int], dict[str, Any]]:
    def state(look: int) -> dict[str, Any]:
        name = "SUCCEEDED" if look >= looks else "RUNNING"
        return {"status_name": name, "succeeded_units": look, "message": "m"}

    return state


def test_blocks_are_moved_until_the_master_says_done() -> None:
    with master([segment("10.0.0.1"), segment("10.0.0.2", used=100)], done_after(3)) as (address, requests):
        assert drain.drain(address, "10.0.0.1", 60) == "3 blocks moved: SUCCEEDED, m"
    assert '/api/v1/drain_jobs {"segments": ["10.0.0.1:12000"], "max_concurrency": 64}' in requests
    assert requests.count("/api/v1/drain_jobs/query?job_id=1-2") == 3


@pytest.mark.parametrize(
    ("segments", "seconds", "reason"),
    [
        ([segment("10.0.0.1", used=0), segment("10.0.0.2")], 60, "no blocks here"),
        ([segment("10.0.0.1")], 60, "500 bytes here, 0 bytes free elsewhere"),
        ([segment("10.0.0.1"), segment("10.0.0.2", used=600)], 60, "500 bytes here, 400 bytes free elsewhere"),
        ([segment("10.0.0.1"), segment("10.0.0.2", used=0, status="DRAINING")], 60, "0 bytes free elsewhere"),
        ([segment("10.0.0.1"), segment("10.0.0.2", used=0)], 3, "moving about 50 blocks takes 4 s, allowed are 3 s"),
    ],
)
def test_what_could_not_be_finished_is_not_begun(segments: list[dict[str, Any]], seconds: float, reason: str) -> None:
    """A member that ends during a drain aborts, and stays in the master's list."""
    with master(segments, done_after(1)) as (address, requests):
        assert reason in drain.drain(address, "10.0.0.1", seconds)
    assert not any("drain_jobs" in request for request in requests)


def test_it_ends_when_nothing_moves_any_more() -> None:
    with master([segment("10.0.0.1"), segment("10.0.0.2", used=0)], lambda _: done_after(99)(7)) as (address, _):
        assert drain.drain(address, "10.0.0.1", 3000) == "7 blocks moved: RUNNING, m"


def test_it_ends_in_time() -> None:
    with master([segment("10.0.0.1"), segment("10.0.0.2", used=0)], done_after(9999)) as (address, requests):
        assert "RUNNING" in drain.drain(address, "10.0.0.1", 30)
    assert sum("query" in request for request in requests) <= 30
