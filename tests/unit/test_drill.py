"""Drills: what counts as failed, wrong, excepted and recovered, and the whole course with engines that misbehave."""

import asyncio
import json
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kvcachepool import constants
from kvcachepool.backends.registry import backend_of
from kvcachepool.cli import main
from kvcachepool.drill.faults import FAULTS, Fault
from kvcachepool.drill.ground import Ground
from kvcachepool.drill.loop import Asker, Pace
from kvcachepool.drill.report import document, markdown, passed, table
from kvcachepool.drill.suite import Suite, Times
from kvcachepool.drill.verdict import FAILED, NOT_RUN, PASSED, Course, Row, Sample, excepted, judge
from kvcachepool.lookup import CannotRunError, find_pool
from kvcachepool.observe.http import HttpReader
from kvcachepool.render.deployment import workload_name
from tests.pools import MOONCAKE, NATIVE, merged, pool
from tests.unit.probe_fakes import FakeEngine, FakeStore, free_ports  # noqa: F401

IMAGE = {"model": {"id": "tiny", "source": {"hub": None, "image": {"path": "/models/tiny"}}}}


def sample(at: float, seconds: float = 0.5, uid: str = "a", **over: Any) -> Sample:
    return Sample(uid, at, seconds, **({"right": True, "reused": 0, "stored": None} | over))


def lost(at: float, seconds: float = 0.5, uid: str = "a") -> Sample:
    return sample(at, seconds, uid, right=None, error=f"{uid}: refused")


REUSE = sample(30, reused=64, stored=28)


def course(*samples: Sample, **over: Any) -> Row:
    fields: dict[str, Any] = {"drill": "x", "kills": (), "began": 10.0, "ended": 15.0} | over
    return judge(Course(samples=[*samples, REUSE], **fields))


def test_the_stall_is_what_the_longest_request_took_more_than_the_longest_without_a_fault() -> None:
    row = course(sample(1, 0.5), sample(2, 2.0), sample(11, 6.5), sample(20))
    assert (row.verdict, row.usual, row.longest, row.stall) == (PASSED, 2.0, 6.5, 4.5)
    assert (row.requests, row.held) == (3, 5.0), "those before the fault are the comparison only"
    assert course(sample(1, 8.0), sample(11, 0.5)).stall == 0.0


def test_a_request_that_ran_when_the_fault_began_counts() -> None:
    assert course(sample(1, 0.5), sample(8, 6.0)).longest == 6.0


def test_reuse_is_back_with_what_was_stored_after_the_fault() -> None:
    old = sample(16, reused=64, stored=9)
    assert course(sample(1), old).reuse_after == 15.5
    row = judge(Course("x", [sample(1), old], (), 10, 15))
    assert (row.verdict, row.reuse_after) == (FAILED, None)
    assert "reused" in row.detail
    unread = sample(17, reused=0, stored=16)
    assert judge(Course("x", [sample(1), unread], (), 10, 15)).reuse_after is None


def test_a_failure_on_an_engine_that_lives_fails_the_drill_and_is_told() -> None:
    row = course(sample(1), lost(12), kills=(("b", 10.5),))
    assert (row.verdict, row.failed, row.excepted) == (FAILED, 1, 0)
    assert "a: refused" in row.detail


def test_failures_of_a_killed_engine_are_excepted_until_it_answers() -> None:
    running, refused, back, again = lost(9.8, 1.0, "b"), lost(11, uid="b"), sample(20, uid="b"), lost(21, uid="b")
    row = course(sample(1), running, refused, back, again, kills=(("b", 10.2),))
    assert (row.failed, row.excepted) == (1, 2)
    second = course(sample(1), running, refused, back, again, kills=(("b", 10.2), ("b", 20.8)))
    assert (second.failed, second.excepted) == (0, 3), "it was killed twice"
    assert excepted([lost(5, 0.5, "b"), refused], [("b", 10.2)]) == [refused], "one that failed before is not"


def test_an_engine_that_answers_from_before_the_kill_is_not_back() -> None:
    answered = sample(10, 0.4, "b")
    assert course(sample(1), answered, lost(11, uid="b"), kills=(("b", 10.3),)).excepted == 1


def test_a_wrong_answer_is_never_excepted() -> None:
    row = course(sample(1), sample(11, uid="b", right=False), kills=(("b", 10.5),))
    assert (row.verdict, row.wrong) == (FAILED, 1)
    assert course(sample(1, right=False), sample(11)).wrong == 1, "also before the fault"


def test_an_excepted_request_is_no_stall() -> None:
    assert course(sample(1), lost(11, 60.0, "b"), kills=(("b", 10.5),)).longest == 0.5


ROWS = [
    course(sample(1), sample(11, 3.0), keys_before=40, keys_lost=38),
    Row("y", NOT_RUN, detail="no store"),
]


def test_the_table_the_page_and_the_document() -> None:
    text = table(ROWS)
    assert "38 of 40" in text
    assert "2.5 s" in text
    assert "y: no store" in text
    assert "PASSED: 1 of 1 drills" in text
    assert passed(ROWS)
    page = markdown(ROWS, {"x": "something breaks"})
    assert "| **x**: something breaks | passed |" in page
    assert len({line.count("|") for line in page.splitlines() if line.startswith("|")}) == 1, "one width"
    found = json.loads(document(ROWS))
    assert (found["passed"], found["rows"][0]["stall"], found["rows"][0]["keys_lost"]) == (True, 2.5, 38)


def test_a_failed_drill_and_one_that_was_not_run_pass_nothing() -> None:
    failed = course(sample(1), lost(12))
    assert not passed([*ROWS, failed])
    assert "FAILED: 1 of 2 drills: x" in table([ROWS[0], failed])
    assert not passed([ROWS[1]])
    assert "NOTHING PROVED" in table([ROWS[1]])


class FakeApi:
    """The pods of one pool; engines are fake ones with one store."""

    def __init__(self, spec: dict[str, Any], uid: str) -> None:
        self.spec, self.uid = spec, uid
        item = pool(IMAGE)
        self.deployment = workload_name(item, constants.ENGINE, backend_of(item).schema(item).digest)
        self.pods: dict[str, dict[str, Any]] = {}
        self.deleted: list[tuple[str, str, int | None]] = []
        self.on_delete: Any = lambda _name: None

    def add(self, name: str, host: str, component: str = constants.ENGINE) -> None:
        self.pods[name] = {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": {constants.LABEL_COMPONENT: component, "pod-template-hash": "h"},
                "ownerReferences": [{"kind": "ReplicaSet", "controller": True, "name": f"{self.deployment}-h"}],
            },
            "spec": {"containers": [{"name": component}]},
            "status": {"phase": "Running", "podIP": host, "conditions": [{"type": "Ready", "status": "True"}]},
        }

    async def get(self, kind: str, _namespace: str, name: str) -> Any:
        return self.spec if kind == constants.KIND and name == "demo" else None

    async def list(self, kind: str, _namespace: str | None, selector: str = "") -> tuple[list[Any], str]:
        assert selector == "kvcachepool.io/pool=demo"
        if kind == "Deployment":
            owner = [{"controller": True, "uid": self.uid}]
            return [{"metadata": {"name": self.deployment, "ownerReferences": owner}}], "1"
        return list(self.pods.values()), "1"

    async def delete(
        self, kind: str, _namespace: str, name: str, uid: str, *, grace_seconds: int | None = None
    ) -> None:
        assert uid == name
        self.deleted.append((kind, name, grace_seconds))
        self.pods.pop(name)
        self.on_delete(name)


QUICK = Pace(pause=0.0, retry=0.0, settle=0.0, look=0.005)
TIMES = Times(baseline=0.05, stock=1, after=0.02, recovery=0.6)


@asynccontextmanager
async def scene(spec: dict[str, Any] = MOONCAKE, count: int = 2, **how: Any):
    async with AsyncExitStack() as stack, HttpReader(timeout=1) as http:
        raw = merged(spec, {"spec": IMAGE, "metadata": {"name": "demo"}})
        found = await find_pool(api := FakeApi(raw, raw["metadata"]["uid"]), "team-a", "demo")
        store = FakeStore()
        made = []
        for number in range(count):
            engine = FakeEngine(store, model="tiny", **how)
            await stack.enter_async_context(engine.running())
            api.add(f"engine-{number}", engine.host)
            made.append(engine)
        asker = Asker(http.session, "tiny", random.Random(1), 1.0)
        yield api, Suite(Ground(api, http, asker, found), 128, QUICK, TIMES), made


def fault(act: Any, seconds: float = 0.05, *, store: bool = True) -> Fault:
    @asynccontextmanager
    async def hold(ground: Ground):
        undo = act(ground)
        yield
        if undo:
            undo()

    return Fault("broken", "something", "something", hold, seconds, store)


async def test_a_pool_that_recomputes_passes() -> None:
    async with scene() as (_, suite, made):

        def forget(_: Ground) -> None:
            made[0].store.blocks.clear()

        (row,) = await suite.run([fault(forget)])
    assert (row.verdict, row.failed, row.wrong, row.detail) == (PASSED, 0, 0, "")
    assert row.reuse_after is not None
    assert row.requests > 4


async def test_engines_that_fail_or_answer_wrong_are_found() -> None:
    async with scene() as (_, suite, made):

        def fail(_: Ground) -> Any:
            made[0].status = 500
            return lambda: setattr(made[0], "status", 200)

        def corrupt(_: Ground) -> Any:
            made[1].wrong_bytes = True
            return lambda: setattr(made[1], "wrong_bytes", False)

        failed, wrong = await suite.run([fault(fail), fault(corrupt)])
    assert (failed.verdict, failed.wrong) == (FAILED, 0)
    assert failed.failed > 0
    assert "engine-0: HTTP 500" in failed.detail
    assert (wrong.verdict, wrong.failed) == (FAILED, 0)
    assert wrong.wrong > 0


async def test_a_killed_engine_is_excepted_and_its_successor_is_asked() -> None:
    async with scene() as (api, suite, made):
        old = made[0]
        api.on_delete = lambda _name: (setattr(old, "status", 503), api.add("engine-2", made[1].host))
        (row,) = await suite.run([FAULTS["engine-deleted"]])
    assert api.deleted == [("Pod", "engine-0", 0)]
    assert (row.verdict, row.failed) == (PASSED, 0), row


async def test_reuse_that_does_not_come_back_fails_the_drill() -> None:
    async with scene() as (_, suite, made):

        def part(_: Ground) -> None:
            for engine in made:
                engine.shares = False

        (row,) = await suite.run([fault(part)])
    assert (row.verdict, row.failed, row.wrong) == (FAILED, 0, 0)


async def test_a_pool_without_a_store_reads_its_own_cache_and_has_no_store_to_break() -> None:
    async with scene(NATIVE, count=1, shares=False) as (_, suite, _made):
        rows = await suite.run([fault(lambda _: None), fault(lambda _: None, store=False)])
    assert [row.verdict for row in rows] == [NOT_RUN, PASSED]


@pytest.mark.parametrize(
    ("how", "count", "says"),
    [
        ({}, 1, "1 engines are ready, expected at least 2"),
        ({"status": 500}, 2, "do not answer without a fault: HTTP 500"),
        ({"restless": True}, 2, "differ without any fault"),
        ({"model": "other"}, 2, "does not serve tiny"),
    ],
)
async def test_where_nothing_can_be_proved_nothing_is_broken(how: dict[str, Any], count: int, says: str) -> None:
    async with scene(count=count) as (api, suite, made):
        for engine in made:
            for name, value in how.items():
                setattr(engine, name, value)
        with pytest.raises(CannotRunError, match=says):
            await suite.run([FAULTS["store-deleted"]])
        assert api.deleted == []


async def test_without_reuse_before_the_fault_it_is_not_run() -> None:
    async with scene(shares=False) as (api, suite, _made):
        (row,) = await suite.run([FAULTS["engine-deleted"]])
        assert api.deleted == []
    assert row.verdict == NOT_RUN
    assert "even without a fault" in row.detail


async def test_what_is_not_there_cannot_be_broken() -> None:
    async with scene() as (_, suite, _made):
        rows = await suite.run([FAULTS["master-deleted"], FAULTS["service-deleted"], FAULTS["pool-full"]])
    assert [row.verdict for row in rows] == [NOT_RUN] * 3
    assert "no ready master pod" in rows[0].detail


async def test_an_interrupted_drill_ends_its_fault() -> None:
    async with scene() as (_, suite, _made):
        held, undone = asyncio.Event(), asyncio.Event()

        @asynccontextmanager
        async def hold(_: Ground):
            held.set()
            try:
                yield
            finally:
                undone.set()

        task = asyncio.create_task(suite.run([Fault("held", "", "", hold, 600)]))
        await held.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert undone.is_set()


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["drill", *arguments])


def test_nothing_is_broken_without_the_pools_name_said_twice() -> None:
    for given in ((), ("--break-pool", "other")):
        result = invoke("pool", "demo", "--drill", "store-deleted", *given)
        assert result.exit_code == 2
        assert "costs the blocks of one store pod" in result.output
        assert "expected the pool's name, demo" in result.output
    assert invoke("job", "demo", "--image", "op:1").exit_code == 2


def test_an_unknown_drill_is_named() -> None:
    result = invoke("pool", "demo", "--drill", "nope", "--break-pool", "demo")
    assert (result.exit_code, "'nope'" in result.output) == (2, True)
    assert all(name in result.output for name in FAULTS)


def test_the_list_tells_what_each_costs() -> None:
    output = invoke("list").output
    assert all(fault.name in output and fault.cost in output for fault in FAULTS.values())


def test_the_job_runs_the_same_command_with_no_more_rights_than_it_needs() -> None:
    result = invoke(
        "job", "demo", "-n", "team-a", "--image", "op:1", "--drill", "store-deleted", "--break-pool", "demo"
    )
    assert result.exit_code == 0, result.output
    _, role, _, found = yaml.safe_load_all(result.output)
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:5] == ["drill", "pool", "demo", "--namespace", "team-a"]
    verbs = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert verbs == {
        "kvcachepools": {"get"}, "deployments": {"list"}, "pods": {"list", "delete"}, "services": {"get", "delete"},
    }  # fmt: skip
    assert CliRunner().invoke(main, [*container["args"], "--help"]).exit_code == 0
