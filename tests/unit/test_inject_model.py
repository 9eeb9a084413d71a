"""Which model a user's command line names, and that injection compares it."""

import pytest

from kvcachepool.inject import complete
from tests.unit.test_inject import Json, first, ready, refusal, user_pod

LINES: list[tuple[list[str] | None, list[str]]] = [
    (None, ["--max-num-seqs=8", "MODEL"]),
    (None, ["serve", "--max-num-seqs=8", "MODEL"]),
    (None, ["vllm", "serve", "MODEL", "--max-num-seqs", "8"]),
    (["vllm", "serve"], ["-tp=1", "MODEL", "--max-num-seqs", "8"]),
    (["vllm", "serve", "--headless"], ["MODEL"]),
    (["/usr/bin/tini", "--", "vllm", "serve"], ["--max-num-seqs", "8", "--seed=1", "MODEL"]),
    (["vllm", "serve"], ["--max-num-seqs", "8", "--model", "MODEL"]),
    (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["--max-num-seqs", "8", "--model=MODEL"]),
    (["/start.sh"], ["--model=MODEL"]),
]
"""Command and arguments of engines that are sure to serve MODEL."""


@pytest.mark.parametrize(("command", "args"), LINES)
def test_the_model_is_seen_wherever_it_stands(command: list[str] | None, args: list[str]) -> None:
    def line(model: str) -> Json:
        return user_pod(command=command, args=[word.replace("MODEL", model) for word in args])

    assert "--revision=r1" in first(complete(line("org/model"), ready()))["args"]
    assert "modelId is org/other, the pool has org/model" in refusal(line("org/other"))
    assert "--revision=r1" not in first(complete(line("/models/tiny"), ready()))["args"]


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (None, ["--max-num-seqs=8"]),
        (None, ["--max-num-seqs", "8", "org/model"]),
        (["vllm", "serve"], ["--max-num-seqs", "8", "org/model"]),
        (["vllm", "serve"], ["--served-model-name", "a", "org/model"]),
        (["vllm", "serve"], ["--enforce-eager", "org/model"]),
        # which ignores a word and serves vLLM's own default
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["org/model"]),
    ],
)
def test_a_model_that_cannot_be_told_is_refused_with_the_fix(command: list[str] | None, args: list[str]) -> None:
    said = refusal(user_pod(command=command, args=args))
    assert "its model cannot be told from the command line; give it as the first word" in said
    assert "or by --model" in said


def test_of_two_models_each_is_compared() -> None:
    said = refusal(user_pod(command=["vllm", "serve"], args=["org/other", "--model=org/model"]))
    assert "modelId is org/other, the pool has org/model" in said


def test_what_an_unknown_program_serves_is_its_own_affair() -> None:
    done = complete(user_pod(command=["/start.sh"], args=["--fast", "org/other"]), ready())
    assert not [word for word in first(done)["args"] if word.startswith("--revision")]
