"""SchemaHomogeneous: labels, flags, environment and the engines' own settings."""

from dataclasses import replace

import pytest

from kvcachepool.api import PoolStatus
from kvcachepool.api.status import SchemaStatus
from kvcachepool.constants import ENGINE, MASTER, STORE
from kvcachepool.facts import ContainerFacts, Observed
from tests.pools import NATIVE
from tests.status_scenes import (
    Case,
    See,
    both,
    container,
    gone,
    healthy,
    main_with,
    member,
    planned,
    pods,
    seen,
    workload,
)

WELL = Case("SchemaHomogeneous", "AllAlike")
OLD = "0123456789ab"


def args(*extra: str, component: str = ENGINE) -> See:
    """With more flags at the end of the first pod's main container."""
    return main_with(component, lambda c: replace(c, args=(*c.args, *extra)))


def seed(value: str | None, *, reference: bool = False) -> See:
    """With another PYTHONHASHSEED in the first pod's main container."""

    def change(found: ContainerFacts) -> ContainerFacts:
        env = {k: v for k, v in found.env.items() if k != "PYTHONHASHSEED"}
        return replace(
            found,
            env=env if value is None else env | {"PYTHONHASHSEED": value},
            env_refs=("PYTHONHASHSEED",) if reference else (),
        )

    return main_with(ENGINE, change)


def reports(only: str = "demo-engine-1", **labels: str | None) -> See:
    """With other labels of one engine's cache configuration; None removes."""

    def see(observed: Observed) -> Observed:
        engine = observed.engines[only]
        config = {k: v for k, v in ((engine.cache_config or {}) | labels).items() if v is not None}
        return replace(observed, engines=observed.engines | {only: replace(engine, cache_config=config)})

    return see


def silent(only: str, error: str = "") -> See:
    """With an engine that could not be read."""

    def see(observed: Observed) -> Observed:
        facts = replace(observed.engines[only], reachable=not error, error=error, cache_config=None)
        return replace(observed, engines=observed.engines | {only: facts})

    return see


def mismatch(name: str, see: See, *says: str, spec: dict[str, object] | None = None) -> Case:
    return Case("SchemaHomogeneous", "SchemaMismatch", see, says, spec=spec or {}, id=name)


def own(**changes: object) -> See:
    """With another engine container of the user's own pod."""

    def see(observed: Observed) -> Observed:
        pods = tuple(
            replace(p, containers=tuple(c if c.init else replace(c, **changes) for c in p.containers))
            if p.name == "own-0"
            else p
            for p in observed.pods
        )
        return replace(observed, pods=pods)

    return see


CASES = [
    Case("SchemaHomogeneous", "AllAlike", says=("2 engines with schema", "declared and observed")),
    Case("SchemaHomogeneous", "AllAlike", base=NATIVE, says=("1 engine",), id="native"),
    Case(
        "SchemaHomogeneous",
        "AllAlike",
        args("--data-parallel-size=2", "--enable-expert-parallel"),
        id="ep and dp are free",
    ),
    Case("SchemaHomogeneous", "AllAlike", args("--max_num_seqs", "8"), id="irrelevant flag"),
    Case("SchemaHomogeneous", "AllAlike", reports(num_gpu_blocks="17"), id="memory may differ"),
    Case(
        "SchemaHomogeneous", "AllAlike", reports(prefix_caching_hash_algo=None), id="a label that is gone says nothing"
    ),
    Case(
        "SchemaHomogeneous",
        "AllAlike",
        reports(cache_dtype="fp8_e4m3"),
        spec={"schema": {"kvCacheDtype": "fp8"}},
        id="alias",
    ),
    Case("SchemaHomogeneous", "AllAlike", member(), ("3 engines",), id="own member"),
    Case("SchemaHomogeneous", "NotAccepted", both(gone(MASTER, STORE, ENGINE), seen(missing=(("x", "Secret", "s"),)))),
    Case("SchemaHomogeneous", "NoMembers", gone(ENGINE)),
    Case("SchemaHomogeneous", "NoMembers", container(ENGINE), id="loading"),
    Case(
        "SchemaHomogeneous",
        "EnginesUnreachable",
        silent("demo-engine-1", "/metrics: timed out after 2 s"),
        ("demo-engine-1", "port 8000", "timed out after 2 s", "declared agrees"),
    ),
    Case(
        "SchemaHomogeneous",
        "EnginesUnreachable",
        silent("demo-engine-0"),
        ("demo-engine-0", "it has not told its cache settings"),
        id="no label",
    ),
    Case(
        "SchemaHomogeneous",
        "RollingOut",
        both(workload(ENGINE, updated=1), pods(ENGINE, only=0, digest=OLD)),
        ("1 pod of a former schema", "demo-engine-0"),
    ),
    mismatch(
        "tp", args("--tensor-parallel-size=4"), "pod demo-engine-0: container engine: tensor is 4, the pool has 1"
    ),
    mismatch("tp short", args("-tp", "4"), "tensor is 4"),
    mismatch("underscores", args("--tensor_parallel_size", "4"), "tensor is 4"),
    mismatch("pp", args("-pp", "2"), "pipeline is 2, the pool has 1"),
    mismatch("dcp", args("--decode-context-parallel-size=2"), "decodeContext is 2, the pool has 1"),
    mismatch("kv dtype", args("--kv-cache-dtype", "fp8"), "kvCacheDtype is fp8_e4m3, the pool has auto"),
    mismatch("dtype", args("--dtype=float16"), "dtype is float16, the pool has auto"),
    mismatch("algo", args("--prefix-caching-hash-algo=sha256"), "hashAlgorithm is sha256, the pool has sha256_cbor"),
    mismatch("block size", args("--block-size", "16"), "blockSize is 16, the pool has 64"),
    mismatch("seed", seed("7"), "pod demo-engine-0: container engine: hashSeed is 7, the pool has 0"),
    mismatch("seed as text", seed("00"), "hashSeed is 00, the pool has 0"),
    mismatch("no seed", seed(None), "hashSeed is unset, the pool has 0"),
    mismatch("hidden seed", seed(None, reference=True), "PYTHONHASHSEED comes from a reference", "literal value 0"),
    mismatch("label", pods(ENGINE, only=1, digest=OLD), f"pod demo-engine-1: label kvcachepool.io/schema is {OLD}"),
    mismatch("no label", pods(ENGINE, only=1, digest=""), "label kvcachepool.io/schema is unset"),
    mismatch("own label", member(digest=OLD), f"pod own-0: label kvcachepool.io/schema is {OLD}"),
    mismatch(
        "copied label",
        both(member(), lambda o: replace(o, pods=tuple(_tp4(p) if p.name == "own-0" else p for p in o.pods))),
        "pod own-0: container engine: tensor is 4, the pool has 1",
    ),
    mismatch(
        "observed", reports(block_size="16"), "pod demo-engine-1: the engine reports block_size 16, the pool has 64"
    ),
    mismatch("observed off", reports(enable_prefix_caching="False"), "enable_prefix_caching False, the pool has True"),
    mismatch(
        "among themselves",
        reports(cache_dtype="fp8_e5m2"),
        "engines report cache_dtype differently: fp8_e5m2 in pod demo-engine-1, auto in pod demo-engine-0",
    ),
    mismatch(
        "own member among themselves",
        both(member(), reports("own-0", cache_dtype="fp8_e5m2")),
        "pod own-0: the engine reports cache_dtype fp8_e5m2, demo-engine-0 of the pool has auto",
        "No traffic or probe goes to own-0.",
    ),
    Case(
        "SchemaHomogeneous",
        "NotReadable",
        both(member(), own(env={}, unreadable={"PYTHONHASHSEED": "Secret s"})),
        ("pod own-0: container engine: PYTHONHASHSEED comes from Secret s, which the operator does not read",),
    ),
    Case(
        "SchemaHomogeneous",
        "NotReadable",
        both(member(), silent("own-0", "/metrics: refused")),
        ("pod own-0: its cache settings could not be read on port 8000 (/metrics: refused)",),
        id="own engine",
    ),
    mismatch(
        "several",
        both(args("-tp", "4", "-pp", "2", "--dtype=float16"), seed("7")),
        "dtype is float16",
        "hashSeed is 7",
        "And 2 more differences.",
    ),
]


def _tp4(pod):  # type: ignore[no-untyped-def]
    return replace(pod, containers=tuple(replace(c, args=(*c.args, "-tp=4")) for c in pod.containers))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_condition(case: Case) -> None:
    case.check()


def test_pods_of_the_former_schema_roll_in_the_pass_that_applies_a_new_one() -> None:
    item = WELL.pool()
    former, schema = healthy(item), planned(item).schema
    assert schema is not None
    previous = PoolStatus(schema_=SchemaStatus(digest=schema.digest, canonical=schema.canonical))
    spec = {"schema": {"blockSize": 32}}
    Case("SchemaHomogeneous", "RollingOut", lambda _: former, ("2 pods",), spec=spec, previous=previous).check()
    # a pod whose label was edited meanwhile is not on its way out when its Deployment is not being rolled
    edited = both(lambda _: healthy(item), pods(ENGINE, only=0, digest=OLD))
    Case("SchemaHomogeneous", "SchemaMismatch", edited, (OLD,), previous=previous).check()


def test_a_refused_schema_is_not_what_members_are_compared_with() -> None:
    item = WELL.pool()
    former, schema = healthy(item), planned(item).schema
    assert schema is not None
    previous = PoolStatus(schema_=SchemaStatus(digest=schema.digest, canonical=schema.canonical))
    spec = {"schema": {"blockSize": 32}, "engines": {"extraArgs": ["--dtype=half"]}}
    case = Case("SchemaHomogeneous", "NotAccepted", lambda _: former, ("former spec",), spec=spec, previous=previous)
    case.check()
    assert case.status().schema_ == previous.schema_


def test_members_that_load_are_judged_by_what_they_declare() -> None:
    loading = container(ENGINE, only=1)
    Case("SchemaHomogeneous", "AllAlike", loading).check()
    case = Case(
        "SchemaHomogeneous", "SchemaMismatch", both(args("-tp=2"), container(ENGINE, only=0)), ("demo-engine-0",)
    )
    case.check()


def test_the_schema_is_published_for_a_router() -> None:
    status = WELL.status()
    assert len(status.schema_.digest) == 12
    for part in ('"blockSize":64', '"hashAlgorithm":"sha256_cbor"', '"hashSeed":"0"'):
        assert part in status.schema_.canonical
