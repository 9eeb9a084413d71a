"""The negative suite: every case changes one field, and each outcome gets its own verdict."""

import asyncio
import json
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kvcachepool import constants
from kvcachepool.backends.registry import backend_of
from kvcachepool.cli import main
from kvcachepool.facts import Observed
from kvcachepool.lookup import CannotRunError
from kvcachepool.negative.arms import Asker, Engine, try_case
from kvcachepool.negative.cases import BY_NAME, CASES, Options, Skipped, Variant, variant
from kvcachepool.negative.pods import engine_pod, variant_schema
from kvcachepool.negative.report import document, passed, table
from kvcachepool.negative.suite import Suite, ground
from kvcachepool.negative.verdict import FAILS, HANGS, ISOLATED, NOT_RUN, SHARED, UNSOUND, WRONG, Row, Seen, judge
from kvcachepool.observe.http import HttpReader
from kvcachepool.plan import make_plan
from kvcachepool.probe.client import RequestError
from kvcachepool.settings import Settings
from tests.pools import MOONCAKE, NATIVE, merged, pool
from tests.status_scenes import READY_MASTER
from tests.unit.probe_fakes import BLOCK, FakeEngine, FakeStore, engines, free_ports  # noqa: F401

IMAGE = {"model": {"id": "tiny", "source": {"hub": None, "image": {"path": "/models/tiny"}}}}
GIVEN = Options(other_weights="/models/alt/tiny", other_revision="r9")


def made(name: str, spec: dict[str, Any] | None = None, options: Options = GIVEN) -> Variant:
    found = variant(BY_NAME[name], pool(IMAGE if spec is None else spec), options)
    assert isinstance(found, Variant), found
    return found


@pytest.mark.parametrize(
    ("name", "fields", "changed_to"),
    [
        ("seed", {"hashSeed"}, "1"),
        ("seed-unset", {"hashSeed"}, "unset"),
        ("hash-algorithm", {"hashAlgorithm"}, "sha256"),
        ("block-size", {"blockSize"}, "32"),
        ("dtype", {"dtype"}, "float16"),
        ("kv-dtype", {"kvCacheDtype"}, "fp8"),
        ("weights", {"modelId"}, "/models/alt/tiny"),
        ("revision", {"modelRevision"}, "r9"),
        ("tensor", {"tensor"}, "2"),
    ],
)
def test_each_case_changes_just_its_field(name: str, fields: set[str], changed_to: str) -> None:
    found, item = made(name), pool(IMAGE)
    expected = backend_of(item).schema(item)
    assert {difference.field for difference in expected.diff(variant_schema(found))} == fields
    assert found.changed_to == changed_to
    assert found.field in fields
    assert {case.name for case in CASES} >= {name}


@pytest.mark.parametrize(
    ("name", "spec", "says"),
    [
        ("weights", IMAGE, "--other-weights"),
        ("revision", {}, "--other-revision"),
    ],
)
def test_what_cannot_be_tried_says_what_is_missing(name: str, spec: dict[str, Any], says: str) -> None:
    found = variant(BY_NAME[name], pool(spec), Options())
    assert isinstance(found, Skipped)
    assert says in found.why


def test_a_variant_the_api_would_refuse_is_skipped() -> None:
    found = variant(BY_NAME["weights"], pool(IMAGE), Options(other_weights="not absolute"))
    assert isinstance(found, Skipped)
    assert "spec.model.source" in found.why


def live(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    item = pool(IMAGE if spec is None else spec)
    plan = make_plan(item, Observed(pods=(READY_MASTER,)), Settings())
    return next(dict(o) for o in plan.objects if "-engine-" in o["metadata"]["name"] and o["kind"] == "Deployment")


def pod_of(name: str, *, prefix: bool = True, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    chosen = IMAGE if spec is None else spec
    return engine_pod(pool(chosen), live(chosen), made(name, chosen), f"demo-negative-{name}", prefix=prefix)


def config(pod: dict[str, Any]) -> dict[str, Any]:
    (text,) = [a for a in pod["spec"]["containers"][0]["args"] if a.startswith("--kv-transfer-config=")]
    found: dict[str, Any] = json.loads(text.partition("=")[2])
    return found


def test_the_pod_is_outside_the_pool_and_like_its_engines() -> None:
    pod, running = pod_of("dtype"), live()["spec"]["template"]
    assert constants.LABEL_POOL not in pod["metadata"]["labels"]
    assert pod["metadata"]["labels"][constants.LABEL_NEGATIVE] == "demo"
    assert pod["metadata"]["annotations"] == running["metadata"]["annotations"]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("KVCachePool", False)
    mine, theirs = pod["spec"]["containers"][0], running["spec"]["containers"][0]
    assert mine["image"] == theirs["image"]
    assert mine["volumeMounts"] == theirs["volumeMounts"]
    changed = set(mine["args"]) ^ set(theirs["args"])
    assert {a.partition("=")[0] for a in changed} == {"--dtype", "--kv-transfer-config"}
    assert pod["spec"]["restartPolicy"] == "Never"


def test_with_the_digest_and_without() -> None:
    assert config(pod_of("dtype"))["kv_connector_extra_config"]["cache_prefix"] == variant_schema(made("dtype")).digest
    assert "cache_prefix" not in config(pod_of("dtype", prefix=False))["kv_connector_extra_config"]


def test_an_engine_without_a_seed_has_none() -> None:
    names = [v["name"] for v in pod_of("seed-unset")["spec"]["containers"][0]["env"]]
    assert "PYTHONHASHSEED" not in names
    (seed,) = [v for v in pod_of("seed")["spec"]["containers"][0]["env"] if v["name"] == "PYTHONHASHSEED"]
    assert seed["value"] == "1"


def test_two_ranks_ask_for_two_devices_and_two_processes() -> None:
    spec = IMAGE | {"engines": {"extraArgs": ["--enforce-eager", "--distributed-executor-backend=uni"]}}
    main_container = pod_of("tensor", spec=spec)["spec"]["containers"][0]
    assert main_container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "--distributed-executor-backend=mp" in main_container["args"]
    assert "--distributed-executor-backend=uni" not in main_container["args"]


def test_clients_name_of_the_model_stays() -> None:
    args = pod_of("weights")["spec"]["containers"][0]["args"]
    assert "--served-model-name=tiny" in args
    assert "--model=/models/alt/tiny" in args


@pytest.mark.parametrize(
    ("seen", "verdict", "failed"),
    [
        (Seen(1024, 0, True), ISOLATED, False),
        (Seen(1024, 960, True), SHARED, True),
        (Seen(1024, 960, False), WRONG, True),
        (Seen(1024, 0, False), UNSOUND, True),
        (Seen(1024, error="timed out after 60 s", timed_out=True), HANGS, True),
        (Seen(1024, error="HTTP 500"), FAILS, True),
    ],
)
def test_verdicts(seen: Seen, verdict: str, failed: bool) -> None:
    row = judge("dtype", "dtype", "float16", seen, prefix=True)
    assert (row.verdict, row.failed) == (verdict, failed)
    assert passed([row]) is not failed
    assert not judge("dtype", "dtype", "float16", seen, prefix=False).failed, "what would have happened is no failure"


def test_the_report_is_a_table_with_a_conclusion() -> None:
    rows = [
        Row("seed", "hashSeed", "1", True, ISOLATED, 1024, 0, True),
        Row("kv-dtype", "kvCacheDtype", "fp8", True, NOT_RUN, detail="the engine ended: no AVX-512"),
        Row("weights", "modelId", "/alt", False, WRONG, 1024, 960, False),
    ]
    text = table(rows).splitlines()
    assert text[0].split() == ["FIELD", "CHANGED", "TO", "PREFIX", "REUSED", "ANSWER", "VERDICT"]
    assert text[1].split() == ["hashSeed", "1", "digest", "0", "of", "1024", "equal", "ISOLATED"]
    assert text[3].split() == ["modelId", "/alt", "none", "960", "of", "1024", "other", "WRONG", "ANSWER"]
    assert "kv-dtype: the engine ended: no AVX-512" in text
    assert text[-1] == "PASSED: 1 of 1 cases reuse nothing and answer as without a cache."
    found = json.loads(document(rows))
    assert found["passed"] is True
    assert [row["verdict"] for row in found["rows"]] == [ISOLATED, NOT_RUN, WRONG]
    leak = [Row("dtype", "dtype", "float16", True, WRONG, 1024, 960, False), rows[0]]
    assert table(leak).endswith("FAILED: 1 of 2 cases are not isolated: dtype.")
    assert "NOTHING PROVED" in table(rows[1:])
    assert "without the digest" in table(rows[2:]).splitlines()[-1]
    assert not passed(rows[1:])


def asker(http: HttpReader, **over: Any) -> Asker:
    settings: dict[str, Any] = {
        "http": http, "model": "org/model", "prompt_tokens": 512, "block_size": BLOCK, "deadline": 30.0,
        "rng": random.Random(3), "save_seconds": 5.0, "poll_seconds": 0.01,
    }  # fmt: skip
    return Asker(**(settings | over))


def named(name: str, engine: FakeEngine) -> Engine:
    return Engine(name, engine.host)


@pytest.mark.parametrize(
    ("reader", "deadline", "expected"),
    [
        ({}, 30.0, (480, True, False)),
        ({"wrong_bytes": True}, 30.0, (480, False, False)),
        ({"shares": False}, 30.0, (0, True, False)),
        ({"shares": False, "restless": True}, 30.0, (0, False, False)),
        ({"hang_on_hit": True}, 1.0, (None, None, True)),
    ],
    ids=["hit", "wrong", "miss", "not deterministic", "hangs"],
)
async def test_what_a_reader_does(reader: dict[str, Any], deadline: float, expected: tuple[Any, ...]) -> None:
    store = FakeStore()
    a, b = FakeEngine(store), FakeEngine(store, **reader)
    async with engines(a, b), HttpReader(timeout=30) as http:
        seen = await try_case(asker(http, deadline=deadline), named("a", a), named("b", b))
    assert (seen.reused_tokens, seen.equal, seen.timed_out) == expected


async def test_a_writer_that_stores_nothing_proves_nothing() -> None:
    """A full store, or a master that is away: a reader that reuses nothing says nothing then."""
    store = FakeStore()
    a, b = FakeEngine(store, saves=False), FakeEngine(store)
    async with engines(a, b), HttpReader(timeout=30) as http:
        seen = await try_case(asker(http, save_seconds=0.2), named("a", a), named("b", b))
    row = judge("seed", "hashSeed", "1", seen, prefix=True)
    assert (row.verdict, row.failed) == (NOT_RUN, False)
    assert "the writer stored no block" in row.detail
    assert not passed([row])


async def test_a_reader_that_works_not_even_alone_is_no_verdict() -> None:
    store = FakeStore()
    a, b = FakeEngine(store), FakeEngine(store, status=500)
    async with engines(a, b), HttpReader(timeout=30) as http:
        with pytest.raises(RequestError, match="HTTP 500"):
            await try_case(asker(http), named("a", a), named("b", b))


class FakeApi:
    """An API server whose engine pods are fake engines: one store for each prefix, or one for all without."""

    def __init__(self, stack: AsyncExitStack, **raw_readers: dict[str, Any]) -> None:
        self._stack = stack
        self.raw_readers = raw_readers
        self.pods: dict[str, dict[str, Any]] = {}
        self.stores: dict[str, FakeStore] = {}
        self.made: list[str] = []
        self.changed = asyncio.Condition()
        self.most = 0
        self.broken: set[str] = set()
        self.spec = merged(MOONCAKE, {"spec": IMAGE})

    async def engine(self, prefix: str, **how: Any) -> FakeEngine:
        store = self.stores.setdefault(prefix, FakeStore())
        found: FakeEngine = await self._stack.enter_async_context(FakeEngine(store, model="tiny", **how).running())
        return found

    async def own(self) -> None:
        item = pool(IMAGE)
        digest = backend_of(item).schema(item).digest
        self._add("demo-engine-x", await self.engine(digest), {constants.LABEL_COMPONENT: "engine"})

    def _add(self, name: str, engine: FakeEngine | None, labels: dict[str, str]) -> None:
        ready = [{"type": "Ready", "status": "True"}] if engine is not None else []
        self.pods[name] = {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"containers": [{"name": "engine"}]},
            "status": {
                "phase": "Running" if engine is not None else "Failed",
                "podIP": engine.host if engine is not None else "",
                "conditions": ready,
            },
        }

    async def get(self, kind: str, _namespace: str, name: str) -> Any:
        if kind == "Pod":
            return self.pods.get(name)
        if kind == "Deployment":
            return live() if name == live()["metadata"]["name"] else None
        return self.spec if name == "demo" else None

    async def list(self, _kind: str, _namespace: str | None, selector: str = "") -> tuple[list[Any], str]:
        assert constants.LABEL_SCHEMA in selector
        return [p for p in self.pods.values() if constants.LABEL_COMPONENT in p["metadata"]["labels"]], "1"

    async def create(self, obj: Any) -> Any:
        name = obj["metadata"]["name"]
        assert name not in self.pods
        case = name.removeprefix("demo-negative-")
        prefix = config(obj)["kv_connector_extra_config"].get("cache_prefix", "")
        how = self.raw_readers.get(case.removeprefix("raw-").replace("-", "_"), {}) if not prefix else {}
        engine = None if case in self.broken else await self.engine(prefix, **how)
        self._add(name, engine, obj["metadata"]["labels"])
        async with self.changed:
            self.made.append(case)
            self.changed.notify_all()
        self.most = max(self.most, len(self.pods))
        return obj

    async def delete(self, _kind: str, _namespace: str, name: str, uid: str) -> None:
        assert uid == name
        del self.pods[name]

    async def pod_log(self, *_: Any, **__: Any) -> str:
        return "INFO fine\nRuntimeError: fp8 needs AVX-512\n"


async def run(api: FakeApi, http: HttpReader, names: list[str], **options: Any) -> list[Row]:
    await api.own()
    found = await ground(api, "team-a", "demo")
    raw = options.pop("raw", False)
    suite = Suite(api, asker(http, model="tiny", **options), found, GIVEN, poll_seconds=0.0)
    return await suite.run([BY_NAME[name] for name in names], raw=raw)


async def test_the_suite_in_a_pool() -> None:
    async with AsyncExitStack() as stack, HttpReader(timeout=30) as http:
        api = FakeApi(stack, dtype={"hang_on_hit": True}, weights={"wrong_bytes": True}, seed={"shares": False})
        api.broken = {"kv-dtype", "raw-kv-dtype"}
        names = ["seed", "dtype", "weights", "kv-dtype"]
        rows = await run(api, http, names, raw=True, deadline=1.0)
    assert [(row.case, row.prefix, row.verdict) for row in rows] == [
        ("seed", True, ISOLATED),
        ("dtype", True, ISOLATED),
        ("weights", True, ISOLATED),
        ("kv-dtype", True, NOT_RUN),
        ("seed", False, ISOLATED),
        ("dtype", False, HANGS),
        ("weights", False, WRONG),
        ("kv-dtype", False, NOT_RUN),
    ]
    assert "RuntimeError: fp8 needs AVX-512" in rows[3].detail
    assert passed(rows)
    assert set(api.pods) == {"demo-engine-x"}, "nothing is left behind"
    assert api.most == 3, "the pool's engine, a writer without the digest, and one reader"
    assert api.made.count("raw-writer") == 1


async def test_a_leak_fails_the_suite() -> None:
    async with AsyncExitStack() as stack, HttpReader(timeout=30) as http:
        api = FakeApi(stack)
        shared = FakeStore()
        api.stores = dict.fromkeys(
            (variant_schema(made("seed")).digest, backend_of(pool(IMAGE)).schema(pool(IMAGE)).digest), shared
        )
        rows = await run(api, http, ["seed"])
    assert [row.verdict for row in rows] == [SHARED]
    assert not passed(rows)


async def test_a_killed_run_leaves_a_pod_that_the_next_one_removes() -> None:
    async with AsyncExitStack() as stack, HttpReader(timeout=30) as http:
        api = FakeApi(stack)
        api._add("demo-negative-seed", None, {constants.LABEL_NEGATIVE: "demo"})
        assert [row.verdict for row in await run(api, http, ["seed"])] == [ISOLATED]
        api._add("demo-negative-seed", None, {"app": "theirs"})
        with pytest.raises(CannotRunError, match="is not the suite's"):
            await run(api, http, ["seed"])
        assert "demo-negative-seed" in api.pods


async def test_cancelling_removes_the_pod() -> None:
    async with AsyncExitStack() as stack, HttpReader(timeout=30) as http:
        api = FakeApi(stack, dtype={"hang_on_hit": True})
        task = asyncio.create_task(run(api, http, ["dtype"], raw=True, deadline=600.0))
        async with api.changed:
            await api.changed.wait_for(lambda: "raw-dtype" in api.made)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert set(api.pods) == {"demo-engine-x"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metadata": {"name": "gone"}}, "there is no KVCachePool"),
        ({"spec": {"schema": {"blockSize": "x"}}}, "not accepted"),
        ({"spec": {"schema": {"blockSize": 32}}}, "no engine Deployment of its schema"),
    ],
)
async def test_where_the_suite_cannot_run_it_says_why(change: dict[str, Any], says: str) -> None:
    async with AsyncExitStack() as stack:
        api = FakeApi(stack)
        api.spec = merged(api.spec, change)
        with pytest.raises(CannotRunError, match=says):
            await ground(api, "team-a", change.get("metadata", {}).get("name", "demo"))


async def test_a_pool_without_a_shared_cache_or_a_ready_engine_has_nothing_to_test() -> None:
    async with AsyncExitStack() as stack:
        api = FakeApi(stack)
        with pytest.raises(CannotRunError, match="no engine of the pool is ready"):
            await ground(api, "team-a", "demo")
        api.spec = merged(NATIVE, {"metadata": {"name": "demo"}})
        with pytest.raises(CannotRunError, match="shares nothing"):
            await ground(api, "team-a", "demo")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["negative", *arguments])


def test_the_job_runs_the_same_command_with_no_more_rights_than_it_needs() -> None:
    result = invoke("job", "demo", "-n", "team-a", "--image", "op:1", "--case", "seed", "--raw", "-o", "json")
    assert result.exit_code == 0, result.output
    account, role, binding, found = yaml.safe_load_all(result.output)
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:6] == ["negative", "pool", "demo", "--namespace", "team-a", "--case"]
    assert "--raw" in container["args"]
    assert found["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    verbs = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert verbs["pods"] == {"get", "list", "create", "delete"}
    assert "secrets" not in verbs
    parsed = CliRunner().invoke(main, [*container["args"], "--help"])
    assert parsed.exit_code == 0, "the Job's own command line is one that this program takes"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("pool", "demo", "--case", "sed"), "found 'sed', expected one of seed,"),
        (("job", "demo"), "--image"),
        (("engines", "--writer", "http://a"), "--reader"),
        (("engines", "--writer", "ftp://a", "--reader", "http://b", "--model", "m"), "--writer: found 'ftp://a'"),
        (("engines", "--writer", "http://a:x", "--reader", "http://b", "--model", "m"), "expected http://HOST:PORT"),
    ],
)
def test_wrong_usage_names_the_option(arguments: tuple[str, ...], says: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_the_cases_are_listed() -> None:
    assert [line.split()[0] for line in invoke("cases").output.splitlines()] == [case.name for case in CASES]
