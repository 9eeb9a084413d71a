"""Answers of real engines and a real master, and answers nobody should send."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool.facts import StoreOperation
from kvcachepool.observe.engine import engine_facts, served_models
from kvcachepool.observe.http import Answer
from kvcachepool.observe.master import master_facts
from kvcachepool.observe.metrics_text import parse_page

HTTP = Path(__file__).parents[1] / "fixtures" / "http"
REFUSED = Answer(error="refused")
OK = Answer("")


def sample(name: str) -> Answer:
    return Answer((HTTP / name).read_text())


def real_master(**over: Answer):
    pages = {
        "health": sample("master_health.json"),
        "segments": sample("master_segments_detail.json"),
        "metrics": sample("master_metrics.txt"),
    }
    return master_facts(**(pages | over))


def test_a_real_engine_after_hits():
    facts = engine_facts(OK, sample("engine_metrics_after_hit.txt"))
    assert facts.reachable
    assert facts.healthy is True
    assert facts.tokens == {"local_compute": 160, "local_cache_hit": 9920, "external_kv_transfer": 9920}
    assert facts.external_queries == 10080
    assert facts.external_hits == 9920
    assert facts.operations is not None
    assert facts.operations["load_get"] == StoreOperation(calls_ok=2, keys=155, bytes=40632320)
    assert facts.operations.keys() <= {"load_get", "save_put"}, "others are no question here"
    assert "save_put" not in facts.operations
    assert facts.cache_config is not None
    assert facts.cache_config["block_size"] == "64"
    assert facts.cache_config["prefix_caching_hash_algo"] == "sha256_cbor"
    assert facts.started is not None
    assert facts.started > 1_700_000_000


def test_a_real_engine_that_has_served_nothing_has_counted_nothing():
    facts = engine_facts(OK, sample("engine_metrics_cold.txt"))
    assert facts.operations == {}, "declared and empty: known to have done nothing"
    assert facts.tokens == {"local_compute": 0, "local_cache_hit": 0, "external_kv_transfer": 0}


def test_absent_metrics_are_unknown_not_zero():
    facts = engine_facts(OK, Answer("# TYPE up gauge\nup 1\n"))
    assert facts.reachable
    assert (facts.tokens, facts.operations, facts.external_queries, facts.cache_config, facts.started) == (None,) * 5


def test_data_parallel_engines_and_failed_operations_add_up():
    text = (
        'vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 1\n'
        'vllm:prompt_tokens_by_source_total{engine="1",source="local_compute"} 2\n'
        'vllm:mooncake_store_operation_total{operation="save_put",status="ok"} 5\n'
        'vllm:mooncake_store_operation_total{operation="save_put",status="partial_failure"} 1\n'
        'vllm:mooncake_store_operation_total{operation="save_put",status="error"} 1\n'
        'vllm:mooncake_store_operation_keys_total{operation="save_put",status="error"} 64\n'
        'vllm:mooncake_store_operation_failed_keys_total{operation="save_put",status="error"} 62\n'
        'vllm:mooncake_store_operation_time_seconds_bucket{operation="save_put",status="ok",le="1.0"} 3\n'
    )
    facts = engine_facts(OK, Answer(text))
    assert facts.tokens == {"local_compute": 3}
    assert facts.operations == {"save_put": StoreOperation(5, 2, keys=64, failed_keys=62)}


def test_values_that_are_no_numbers_are_left_out():
    facts = engine_facts(OK, Answer("vllm:external_prefix_cache_queries_total NaN\nprocess_start_time_seconds +Inf\n"))
    assert facts.external_queries is None
    assert facts.started is None


def test_an_engine_that_cannot_be_asked():
    facts = engine_facts(Answer(error="HTTP 503"), Answer(error="timed out after 3 s"))
    assert not facts.reachable
    assert facts.error == "/metrics: timed out after 3 s"
    assert facts.healthy is False
    assert engine_facts(REFUSED, REFUSED).healthy is None


def test_a_page_that_is_no_metrics_page():
    facts = engine_facts(OK, Answer('vllm:cache_config_info{a="1" 1.0\nvllm:prompt_tokens_by_source_total{{{ x\n'))
    assert not facts.reachable
    assert facts.error == "/metrics: not a metrics page"


def test_real_models():
    assert served_models(sample("engine_models.json")) == ({"tiny": 10240}, "")


def test_adapters_without_a_length_are_left_out():
    body = {"data": [{"id": "m", "max_model_len": 1}, {"id": "lora", "max_model_len": None}, 3, {"id": 4}]}
    assert served_models(Answer(json.dumps(body))) == ({"m": 1}, "")
    assert served_models(Answer("[]")) == ({}, "no list of models")
    assert served_models(REFUSED) == ({}, "refused")


def test_a_real_master():
    facts = real_master()
    assert facts.reachable
    assert facts.error == ""
    assert facts.service_ready is True
    assert facts.capacity == 536870912
    assert facts.keys == 187
    assert facts.clients == 1
    assert facts.put_requests == 187, "engines put in batches; the plain counter stays 0"
    assert facts.put_failures == 0
    assert facts.segments is not None
    (segment,) = facts.segments
    assert (segment.protocol, segment.size, segment.status, segment.host) == ("tcp", 536870912, "OK", "127.0.0.1")


def test_a_master_without_its_metrics_page_is_reachable_with_unknown_figures():
    facts = real_master(metrics=Answer(error="HTTP 404"))
    assert facts.reachable
    assert facts.service_ready is True
    assert facts.capacity is None
    assert facts.error == "/metrics: HTTP 404"
    assert facts.segments is not None


def test_absent_master_metrics_are_unknown():
    facts = real_master(metrics=Answer("master_key_count 3\n"))
    assert facts.keys == 3
    assert facts.put_requests is None
    assert facts.evictions_done is None


def test_a_master_that_does_not_serve_answers_200_all_the_same():
    facts = real_master(health=Answer('{"status":"ok","service_ready":false}'))
    assert facts.reachable
    assert facts.service_ready is False


def test_a_dead_master():
    facts = master_facts(REFUSED, REFUSED, REFUSED)
    assert not facts.reachable
    assert facts.error == "/health: refused"
    assert facts.segments is None


@pytest.mark.parametrize("health", ["[]", "3", "null", '"ok"'])
def test_health_must_be_an_object(health):
    facts = real_master(health=Answer(health))
    assert not facts.reachable
    assert facts.error == "/health: not a JSON object"


def test_segments_of_ipv6_members():
    row = {"segment_name": "s", "te_endpoint": "[fd00::7]:15001", "protocol": "tcp", "size_bytes": 1, "status": "OK"}
    facts = real_master(segments=Answer(json.dumps({"segments": [row, "x", {"size_bytes": True}]})))
    assert facts.segments is not None
    assert [segment.host for segment in facts.segments] == ["fd00::7", ""]


def test_unwanted_and_overlong_lines_never_reach_the_parser():
    page = parse_page('bad{\nwanted 1\nwanted{x="' + "y" * 20_000 + '"} 2\n', "wanted".__eq__)
    assert page is not None
    assert page.total("wanted") == 1


HOSTILE = st.text(max_size=400) | st.text(alphabet='{}",=\\ \n#_:09azNe.+-', max_size=400)
METRIC = st.sampled_from(
    [
        "vllm:prompt_tokens_by_source_total",
        "vllm:cache_config_info",
        "vllm:mooncake_store_operation_total",
        "master_key_count",
    ]
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(METRIC, HOSTILE)), HOSTILE)
def test_no_text_makes_a_parser_fail(lines, other):
    text = "\n".join(name + rest for name, rest in lines) + "\n" + other
    facts = engine_facts(OK, Answer(text))
    assert facts.reachable or facts.error
    master = master_facts(Answer(other), Answer(other), Answer(text))
    assert master.keys is None or master.keys >= 0


@settings(deadline=None, max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda s: (
            st.lists(s, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "segments",
                        "te_endpoint",
                        "size_bytes",
                        "service_ready",
                        "data",
                        "id",
                        "max_model_len",
                        "protocol",
                    ]
                ),
                s,
            )
        ),
    )
)
def test_no_json_makes_a_parser_fail(value):
    answer = Answer(json.dumps(value))
    facts = master_facts(answer, answer, answer)
    assert facts.service_ready in (True, False, None)
    assert all(isinstance(segment.size, int) for segment in facts.segments or ())
    models, error = served_models(answer)
    assert isinstance(models, dict)
    assert error in ("", "no list of models")


def test_a_page_of_millions_of_samples_is_cut():
    page = parse_page("wanted 1\n" * 400_000, "wanted".__eq__)
    assert page is not None
    assert page.total("wanted") == 5000
