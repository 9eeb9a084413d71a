"""One case for each field: the pool with that field changed, and nothing else. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import Invalid, parse_pool

Spec = dict[str, Any]
UNSET: Final = "unset"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user brings along for cases that need other weights."""

    other_weights: str = ""
    """A directory (weights on a volume or in the image) or a model of the hub, of the same shape."""
    other_revision: str = ""
    """A revision of the hub's model that exists."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The reader of one case."""

    case: str
    field: str
    changed_to: str
    pool: KVCachePool
    unset_seed: bool = False
    """The engine gets no PYTHONHASHSEED at all, which the operator itself never renders."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A case that cannot be made of this pool."""

    case: str
    field: str
    why: str


@dataclass(frozen=True, slots=True)
class Case:
    """One field."""

    name: str
    field: str
    meaning: str
    change: Callable[[KVCachePool, Options], tuple[str, Spec] | str]
    """What it is changed to, and the change of the spec; or why there is none."""


def _other(value: object, *choices: Any) -> Any:
    return next(choice for choice in choices if choice != value)


def _seed(pool: KVCachePool, _: Options) -> tuple[str, Spec]:
    seed = _other(pool.spec.schema_.hash_seed, "1", "0")
    return seed, {"schema": {"hashSeed": seed}}


def _no_seed(_pool: KVCachePool, _: Options) -> tuple[str, Spec]:
    return UNSET, {}


def _algorithm(pool: KVCachePool, _: Options) -> tuple[str, Spec]:
    algorithm = _other(pool.spec.schema_.hash_algorithm, "sha256", "sha256_cbor")
    return algorithm, {"schema": {"hashAlgorithm": algorithm}}


def _block_size(pool: KVCachePool, _: Options) -> tuple[str, Spec]:
    size = _other(pool.spec.schema_.block_size, 32, 64)
    return str(size), {"schema": {"blockSize": size}}


def _dtype(pool: KVCachePool, _: Options) -> tuple[str, Spec]:
    dtype = "float16" if pool.spec.schema_.dtype in {"auto", "bfloat16"} else "bfloat16"
    return dtype, {"schema": {"dtype": dtype}}


def _kv_dtype(pool: KVCachePool, _: Options) -> tuple[str, Spec]:
    dtype = "auto" if pool.spec.schema_.kv_cache_dtype.startswith("fp8") else "fp8"
    return dtype, {"schema": {"kvCacheDtype": dtype}}


def _tensor(pool: KVCachePool, _: Options) -> tuple[str, Spec]:
    tensor = 2 if pool.spec.schema_.parallelism.tensor == 1 else pool.spec.schema_.parallelism.tensor // 2
    spec: Spec = {"schema": {"parallelism": {"tensor": tensor}}}
    single = "--distributed-executor-backend=uni"
    if tensor > 1 and single in pool.spec.engines.extra_args:  # one process cannot run two ranks
        spec["engines"] = {"extraArgs": [a.replace("=uni", "=mp") for a in pool.spec.engines.extra_args if a]}
    return str(tensor), spec


def _weights(pool: KVCachePool, options: Options) -> tuple[str, Spec] | str:
    """Another model whose path or name ends in the same word: the engine's own key holds no more than that."""
    if not options.other_weights:
        return "give --other-weights: a model of the same shape"
    last = pool.spec.model.id.rpartition("/")[2]
    source = _source(pool, options.other_weights)
    identity = options.other_weights if pool.spec.model.source.hub is not None else f"negative/{last}"
    if identity == pool.spec.model.id:
        return "--other-weights is the pool's own model"
    return options.other_weights, {"model": {"id": identity, **source}}


def _revision(pool: KVCachePool, options: Options) -> tuple[str, Spec] | str:
    if pool.spec.model.source.hub is not None and not options.other_revision:
        return "give --other-revision: one that the hub has"
    revision = options.other_revision or f"{pool.spec.model.revision or 'none'}-negative"
    source = _source(pool, options.other_weights) if options.other_weights else {}
    return revision, {"model": {"revision": revision, **source}}


def _source(pool: KVCachePool, weights: str) -> Spec:
    source = pool.spec.model.source
    if source.image is not None:
        return {"source": {"image": {"path": weights}}}
    if source.pvc is not None:
        return {"source": {"pvc": {"path": weights}}}
    return {}


CASES: Final = (
    Case("seed", "hashSeed", "another hash seed", _seed),
    Case("seed-unset", "hashSeed", "no hash seed", _no_seed),
    Case("hash-algorithm", "hashAlgorithm", "another hash algorithm", _algorithm),
    Case("block-size", "blockSize", "another block size", _block_size),
    Case("dtype", "dtype", "another data type of the model", _dtype),
    Case("kv-dtype", "kvCacheDtype", "another data type of the cache", _kv_dtype),
    Case("weights", "modelId", "other weights under the same last name", _weights),
    Case("revision", "modelRevision", "another revision", _revision),
    Case("tensor", "tensor", "another tensor parallelism", _tensor),
)
BY_NAME: Final[Mapping[str, Case]] = {case.name: case for case in CASES}


def variant(case: Case, pool: KVCachePool, options: Options) -> Variant | Skipped:
    """The pool with the case's field changed; clients' name of the model stays."""
    change = case.change(pool, options)
    if isinstance(change, str):
        return Skipped(case.name, case.field, change)
    changed_to, spec = change
    name = pool.spec.model.served_name or pool.spec.model.id
    raw = _merged(pool.spec.model_dump(mode="json", by_alias=True, exclude_none=True), spec)
    raw = _merged(raw, {"model": {"servedName": name}})
    made = parse_pool({"metadata": pool.metadata.model_dump(), "spec": raw})
    if isinstance(made, Invalid):
        return Skipped(case.name, case.field, made.findings[0].message)
    return Variant(case.name, case.field, changed_to, made, unset_seed=case.name == "seed-unset")


def _merged(base: Spec, change: Spec) -> Spec:
    result = dict(base)
    for key, value in change.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return result
