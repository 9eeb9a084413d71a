"""The proof against two engines over loopback that can be told to misbehave."""

import asyncio
import random

import pytest

from kvcachepool.observe.engine import read_engine
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.traffic import Traffic
from kvcachepool.probe.client import RequestError
from kvcachepool.probe.schedule import Member
from kvcachepool.probe.sequence import Prober, prompt_length
from tests.unit.probe_fakes import BLOCK, FakeEngine, FakeStore, engines, free_ports  # noqa: F401


def pair(**both) -> tuple[FakeEngine, FakeEngine]:
    store = FakeStore()
    return FakeEngine(store, **both), FakeEngine(store, **both)


def member(name: str, engine: FakeEngine) -> Member:
    return Member(name, f"uid-{name}", engine.host, f"uid-{name}/0")


def prober(http: HttpReader, **over) -> Prober:
    settings = {
        "http": http,
        "traffic": Traffic(),
        "model": "org/model",
        "prompt_tokens": 1000,
        "block_size": BLOCK,
        "deadline": 60.0,
        "rng": random.Random(7),
        "warm": set(),
        "save_seconds": 5.0,
        "poll_seconds": 0.01,
    }
    return Prober(**(settings | over))


async def probe(a: FakeEngine, b: FakeEngine, **over):
    async with engines(a, b), HttpReader(timeout=30) as http:
        return await prober(http, **over).run(member("a", a), member("b", b))


async def test_a_good_pool_is_verified():
    a, b = pair()
    result = await probe(a, b)
    assert result.outcome == "Verified"
    assert result.verified is True
    assert (result.writer, result.reader) == ("a", "b")
    assert result.prompt_tokens == 992  # 31 whole blocks out of the 1000 tokens that were wanted
    assert result.reused_tokens == 960  # all but the last block
    assert result.negative_reused_tokens == 0
    assert result.loaded_bytes == 960_000
    assert result.ttft_recompute_ms
    assert result.ttft_reuse_ms
    assert result.ttft_local_ms
    assert "b reused 960 of 992 prompt tokens that a computed" in result.detail
    assert result.last_time
    assert result.last_time.endswith("Z")


async def test_requests_are_greedy_seeded_exact_and_safe_for_a_small_vocabulary():
    a, b = pair()
    await probe(a, b)
    for request in a.requests + b.requests:
        assert request["temperature"] == 0
        assert request["seed"] == 0
        assert request["ignore_eos"] is True
        assert request["stream_options"] == {"include_usage": True}
        assert all(16 <= token <= 479 for token in request["prompt"])
    salts = [request["cache_salt"] for request in a.requests + b.requests if "cache_salt" in request]
    assert len(salts) == 1, "only the reader's negative arm has a salt"


async def test_two_probes_with_one_seed_ask_the_same_and_with_another_not():
    prompts = []
    for seed in (1, 1, 2):
        a, b = pair()
        await probe(a, b, rng=random.Random(seed))
        prompts.append(a.requests[0]["prompt"])
    assert prompts[0] == prompts[1] != prompts[2]


async def test_nothing_shared_is_a_miss_after_a_second_try_on_a_fresh_prompt():
    a, b = pair(shares=False)
    result = await probe(a, b)
    assert result.outcome == "ZeroCrossInstanceHits"
    assert result.verified is False
    assert result.reused_tokens == 0
    assert result.ttft_reuse_ms is None
    assert result.gigabytes_per_second == ""
    assert "b reused 0 of 992" in result.detail
    assert "a stored" in result.detail
    colds = [r["prompt"] for r in a.requests if len(r["prompt"]) == 992]
    assert len({tuple(p) for p in colds}) == 3  # warm-up and two tries


async def test_wrong_bytes_are_a_mismatch_although_the_reader_agrees_with_itself():
    a, b = pair()
    b.wrong_bytes = True
    result = await probe(a, b)
    assert result.outcome == "OutputMismatch"
    assert result.verified is False
    assert result.reused_tokens == 960


async def test_a_store_that_ignores_the_salt_is_a_negative_hit():
    a, b = pair(ignores_salt=True)
    result = await probe(a, b)
    assert result.outcome == "NegativeArmHit"
    assert result.negative_reused_tokens == 960


async def test_cold_answers_that_differ_by_chunking_are_no_mismatch():
    a, b = pair()
    a.numerics, b.numerics = "chunked", "otherwise"
    result = await probe(a, b)
    assert result.outcome == "Verified"
    assert len([r for r in b.requests if "cache_salt" in r]) == 2, "the reader was asked for a cold run of its own"


async def test_a_reader_whose_cold_answers_never_repeat_is_a_mismatch():
    a, b = pair()
    b.restless = True
    assert (await probe(a, b)).outcome == "OutputMismatch"


async def test_failing_saves_are_not_verified_even_where_a_block_is_reused():
    a, b = pair()
    a.saves_fail = True
    result = await probe(a, b)
    assert result.outcome == "SavesFailing"
    assert result.verified is False
    assert result.reused_tokens == 2 * BLOCK, "each of the writer's two requests got one block through"
    assert "stored 2 blocks and failed to store 59" in result.detail


async def test_failing_loads_are_not_verified():
    a, b = pair()
    b.loads_fail = True
    result = await probe(a, b)
    assert result.outcome == "LoadsFailing"
    assert "failed to load 1" in result.detail


async def test_saves_that_show_only_at_the_next_step_are_waited_for():
    a, b = pair(shows_saves_late=True)
    result = await probe(a, b)
    assert result.outcome == "Verified"
    assert any(len(request["prompt"]) < BLOCK for request in a.requests), "the engine got something to do"


async def test_bytes_that_users_loaded_meanwhile_are_taken_off():
    a, b = pair()
    b.user_tokens = 960
    assert (await probe(a, b)).loaded_bytes == 960_000


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"hang_on_hit": True}, "b (warming up): timed out after 3 s"),
        ({"status": 500}, "HTTP 500: engine is dead"),
        ({"status": 401}, "API key"),
        ({"drop_after": 3}, "broke off"),
        ({"no_details": True}, "--enable-prompt-tokens-details"),
        ({"prefix_cache": False, "shares": False}, "does not reuse its own prompt"),
        ({"model": "other"}, "does not serve model org/model: found other"),
        ({"max_model_len": 100}, "no room for two blocks"),
    ],
)
async def test_what_cannot_be_finished_is_unknown_and_says_where_and_why(fault, message):
    a, b = pair(**fault)
    result = await probe(a, b, deadline=3.0)
    assert result.outcome == "ProbeFailed"
    assert result.verified is None
    assert message in result.detail
    assert "hf_" not in result.detail


async def test_an_engine_that_is_gone_is_unknown():
    a, b = pair()
    async with engines(a), HttpReader(timeout=30) as http:
        result = await prober(http).run(member("a", a), member("b", b))
    assert result.outcome == "ProbeFailed"
    assert "b (warming up): refused" in result.detail


async def test_warm_members_are_not_warmed_again():
    a, b = pair()
    warm: set[str] = set()
    await probe(a, b, warm=warm)
    before = len(a.requests), len(b.requests)
    await probe(a, b, warm=warm, rng=random.Random(8))
    assert len(a.requests) - before[0] == before[0] - 1
    assert len(b.requests) - before[1] == before[1] - 2


async def test_the_probes_tokens_are_taken_off_exactly():
    a, b = pair(shows_saves_late=True)
    traffic = Traffic()
    async with engines(a, b), HttpReader(timeout=30) as http:
        uids = {"uid-a": a, "uid-b": b}

        async def read(now: float) -> None:
            epoch = traffic.epoch
            facts = {uid: await read_engine(http, engine.host) for uid, engine in uids.items()}
            traffic.record(facts, frozenset(uids), now, epoch)

        await read(0)
        result = await prober(http, traffic=traffic).run(member("a", a), member("b", b))
        assert result.outcome == "Verified"
        a.sources.update(local_compute=300, external_kv_transfer=100)
        a.queries += 400
        await read(30)
    rates = traffic.rates(30)
    assert rates.tokens == 400
    assert rates.pool == 0.25
    assert rates.local == 0
    assert rates.external_queries == 400


async def test_without_users_the_probe_alone_is_no_traffic():
    a, b = pair()
    traffic = Traffic()
    async with engines(a, b), HttpReader(timeout=30) as http:
        for now in (0.0, 30.0):
            epoch = traffic.epoch
            facts = {"uid-a": await read_engine(http, a.host), "uid-b": await read_engine(http, b.host)}
            traffic.record(facts, frozenset(facts), now, epoch)
            if now == 0:
                await prober(http, traffic=traffic).run(member("a", a), member("b", b))
    assert traffic.rates(30).tokens == 0
    assert traffic.rates(30).pool is None


async def test_a_request_that_broke_off_spoils_no_rate():
    a, b = pair()
    a.drop_after = 2
    traffic = Traffic()
    async with engines(a, b), HttpReader(timeout=30) as http:
        for now in (0.0, 30.0, 60.0):
            epoch = traffic.epoch
            traffic.record({"uid-a": await read_engine(http, a.host)}, frozenset({"uid-a"}), now, epoch)
            if now == 0:
                await prober(http, traffic=traffic).run(member("a", a), member("b", b))
    assert a.sources["local_compute"] > 0
    assert not traffic.rates(60).tokens


async def test_cancelling_stops_at_once_and_frees_the_window():
    a, b = pair(hang_on_hit=True)
    traffic = Traffic()
    async with engines(a, b), HttpReader(timeout=30) as http:
        task = asyncio.create_task(prober(http, traffic=traffic).run(member("a", a), member("b", b)))
        await b.hit.wait()
        assert traffic.probes == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert traffic.probes == 0


def test_prompts_are_whole_blocks_within_the_context():
    assert prompt_length(8192, 10240, 64) == 8192
    assert prompt_length(8192, 4096, 64) == 4032
    assert prompt_length(8200, 32768, 64) == 8192
    assert prompt_length(300, 512, 128) == 256
    with pytest.raises(RequestError, match="two blocks of 256"):
        prompt_length(8192, 512, 256)
