"""What masters and engines say over HTTP, up to the status that is made of it."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.api.crd import crd
from kvcachepool.facts import EngineFacts, MasterFacts
from kvcachepool.observe.engine import engine_facts, served_models
from kvcachepool.observe.http import Answer
from kvcachepool.observe.master import keys_by_prefix, master_facts
from kvcachepool.observe.metrics_text import parse_page
from kvcachepool.observe.traffic import Traffic
from kvcachepool.status import make_status, transitions
from tests.fuzz.strategies import answers, documents, fixture, mutated, numbers, sayable, texts
from tests.pools import pool
from tests.status_scenes import NOW, healthy, planned

SEGMENTS = json.loads(fixture("http/master_segments_detail.json"))
HEALTH = json.loads(fixture("http/master_health.json"))
MODELS = json.loads(fixture("http/engine_models.json"))
MASTER_METRICS = fixture("http/master_metrics.txt")
ENGINE_METRICS = fixture("http/engine_metrics_after_hit.txt")


def _plain(schema: Any) -> Any:
    """Without Kubernetes' own words."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _plain(value) for name, value in schema.items() if not str(name).startswith("x-kubernetes")}


STATUS = jsonschema.Draft7Validator(
    _plain(crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"])
)
POOL = pool()
PLAN = planned(POOL)
HEALTHY = healthy(POOL)


@st.composite
def samples(draw: st.DrawFn) -> str:
    """A page of the right names with any numbers and labels."""
    names = sorted({line.partition("{")[0].partition(" ")[0] for line in (MASTER_METRICS + ENGINE_METRICS).split("\n")
                    if line.startswith(("vllm:", "master_", "process_"))})  # fmt: skip
    lines = []
    for _ in range(draw(st.integers(0, 12))):
        label = json.dumps(draw(texts), ensure_ascii=False)
        where = draw(
            st.sampled_from(
                ["", f"{{operation={label}}}", f'{{source={label},status="ok"}}', f"{{block_size={label}}}"]
            )
        )
        lines.append(f"{draw(st.sampled_from(names))}{where} {draw(numbers)}")
    return "\n".join(lines) + "\n"


pages = st.one_of(mutated(MASTER_METRICS), mutated(ENGINE_METRICS), samples(), samples(), texts)


def status_holds(**seen: Any) -> None:
    """A status can be made of it, the API server takes it, and the next pass writes the same."""
    status = make_status(POOL, PLAN, replace(HEALTHY, **seen), NOW)
    document = json.loads(json.dumps(status.dump()))
    assert not [error.message[:500] for error in STATUS.iter_errors(document)]
    for condition in status.conditions:
        sayable(condition.message)
    for transition in transitions(POOL.status, status):
        sayable(transition.message)
    again = make_status(POOL.model_copy(update={"status": status}), PLAN, replace(HEALTHY, **seen), NOW)
    assert again.dump() == status.dump()


@given(health=answers(documents(HEALTH)), segments=answers(documents(SEGMENTS)), metrics=answers(pages))
def test_a_master_says_anything(health: Answer, segments: Answer, metrics: Answer) -> None:
    facts = master_facts(health, segments, metrics)
    assert isinstance(facts, MasterFacts)
    status_holds(master=facts)


@given(health=answers(texts), metrics=answers(pages))
def test_an_engine_says_anything(health: Answer, metrics: Answer) -> None:
    facts = engine_facts(health, metrics)
    assert isinstance(facts, EngineFacts)
    status_holds(engines=dict.fromkeys(HEALTHY.engines, facts))


@given(first=answers(pages), second=answers(pages), pause=st.sampled_from([0.0, 30.0, -1.0, 1e9]))
def test_figures_of_two_passes_make_rates_or_none(first: Answer, second: Answer, pause: float) -> None:
    traffic = Traffic()
    now = 1e9
    for answer in (first, second, first):
        traffic.record({"u": engine_facts(answer, answer)}, frozenset({"u"}), now, traffic.epoch)
        now += pause
        status_holds(rates=traffic.rates(now))


def test_counters_whose_sum_no_number_holds_are_left_out() -> None:
    lines = [f'vllm:prompt_tokens_by_source_total{{source="local_compute",engine="{n}"}} 1' for n in range(2)]
    small = Answer("\n".join(lines) + "\n")
    large = Answer("\n".join(line[:-1] + "1e308" for line in lines) + "\n")
    traffic = Traffic()
    for now, answer in ((0.0, small), (30.0, large), (60.0, small)):
        traffic.record({"u": engine_facts(answer, answer)}, frozenset({"u"}), now, traffic.epoch)
        status_holds(rates=traffic.rates(now))


def test_label_values_that_nobody_asks_for_are_not_kept() -> None:
    """A page may bring thousands of fresh ones each time, and rates are kept for ten minutes."""
    names = ('vllm:prompt_tokens_by_source_total{source="', 'vllm:mooncake_store_operation_keys_total{operation="')
    page = "\n".join(f'{name}{n}"}} 1' for name in names for n in range(2000)) + "\n"
    facts = engine_facts(Answer(), Answer(page))
    assert facts.reachable
    assert not facts.tokens
    assert not facts.operations


@given(text=pages)
def test_a_page_is_read_or_is_none(text: str) -> None:
    page = parse_page(text, lambda _name: True)
    assert page is None or all(abs(sample.value) != float("inf") for sample in page.samples)


@given(answer=answers(documents(MODELS)))
def test_models(answer: Answer) -> None:
    models, error = served_models(answer)
    assert bool(error) or all(isinstance(length, int) for length in models.values())
    for name in models:
        sayable(name, 1_000_000)


@given(text=st.one_of(mutated(fixture("http/master_keys.txt")), texts))
def test_keys(text: str) -> None:
    assert all(count > 0 for count in keys_by_prefix(text).values())
