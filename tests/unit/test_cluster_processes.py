"""Starting, recognising and stopping programs."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from e2e.cluster.errors import StartFailedError
from e2e.cluster.processes import Daemon, Supervisor, myself, start_time


def _sleeper(*extra: str, configs: tuple[Path, ...] = ()) -> Daemon:
    return Daemon("sleeper", ("/bin/sleep", "60", *extra), configs=configs)


def test_a_daemon_is_started_once_and_found_by_another_supervisor(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    assert supervisor.ensure(_sleeper())
    assert not supervisor.ensure(_sleeper())
    assert Supervisor(tmp_path).alive("sleeper")
    assert supervisor.stop("sleeper")
    assert not Supervisor(tmp_path).alive("sleeper")
    assert supervisor.names() == []


def test_changed_arguments_or_configuration_start_it_anew(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    config = tmp_path / "config"
    config.write_text("a")
    supervisor.ensure(_sleeper(configs=(config,)))
    config.write_text("b")
    assert supervisor.ensure(_sleeper(configs=(config,)))
    assert supervisor.ensure(_sleeper("1", configs=(config,)))
    supervisor.stop("sleeper")


def test_a_killed_daemon_is_not_alive_and_starts_again(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.ensure(_sleeper())
    supervisor.kill("sleeper")
    assert not supervisor.alive("sleeper")
    assert supervisor.ensure(_sleeper())
    supervisor.stop("sleeper")


@pytest.mark.parametrize("field", ["started", "program"])
def test_a_recorded_pid_that_is_somebody_elses_is_never_stopped(tmp_path: Path, field: str) -> None:
    stranger = myself().__dict__ | {field: "1"}
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids" / "sleeper.json").write_text(json.dumps(stranger))
    supervisor = Supervisor(tmp_path)
    assert not supervisor.alive("sleeper")
    assert not supervisor.stop("sleeper")
    assert start_time(os.getpid()) is not None


def test_a_damaged_record_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids" / "sleeper.json").write_text("{")
    assert Supervisor(tmp_path).record("sleeper") is None


def test_a_failed_start_shows_the_log_at_once(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.ensure(Daemon("bad", (sys.executable, "-c", "raise SystemExit('no such flag')")))
    begin = time.monotonic()
    with pytest.raises(StartFailedError, match="no such flag"):
        supervisor.wait_ready("bad", lambda: False, 30)
    assert time.monotonic() - begin < 20


def test_not_ready_in_time_is_an_error(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.ensure(_sleeper())
    with pytest.raises(StartFailedError, match="not ready"):
        supervisor.wait_ready("sleeper", lambda: False, 0.3)
    supervisor.stop("sleeper")


def test_the_log_of_an_earlier_run_does_not_mislead(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.ensure(Daemon("d", ("/bin/echo", "earlier")))
    while supervisor.alive("d"):
        time.sleep(0.01)
    supervisor.ensure(Daemon("d", ("/bin/echo", "later")))
    while supervisor.alive("d"):
        time.sleep(0.01)
    assert supervisor.tail("d").endswith("\nlater")
    assert "earlier" not in supervisor.tail("d")


def test_a_daemon_is_alive_from_the_first_moment(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    for _ in range(20):
        supervisor.ensure(_sleeper())
        assert supervisor.alive("sleeper")
        supervisor.kill("sleeper")
