"""The line of a crashed container's log that tells what to do."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool.credentials import redact
from kvcachepool.observe.logs import MAX_LENGTH, actionable_line

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
ENGINE = "(EngineCore_DP0 pid=77) ERROR 11-29 15:41:32 [core.py:1510] "
API = "(APIServer pid=1) ERROR 11-29 15:41:33 [utils.py:10] "
FRAMES = '  File "/opt/vllm/worker.py", line 1, in load\n    raise\n    ^^^^^\n'


def traceback(end: str, prefix: str = "") -> str:
    text = f"Traceback (most recent call last):\n{FRAMES}{end}"
    return "\n".join(prefix + line for line in text.split("\n")) + "\n"


def test_a_real_engine_whose_master_is_down():
    """39 KB; it ends with the API server's consequence."""
    line = actionable_line((LOGS / "engine_master_down.txt").read_text())
    assert line == "RuntimeError: Initialize MooncakeDistributedStore failed."


def test_first_error_in_the_middle_of_six_kilobytes():
    """vllm#44376: noise before, shutdown noise as the last 200 bytes."""
    log = (
        "".join(f"(APIServer pid=1) INFO 11-29 15:40:0{i % 10} [launcher.py:195] Route: /v1/x{i}\n" for i in range(40))
        + f"{ENGINE}EngineCore failed to start.\n"
        + traceback(
            "ValueError: To serve at least one request, 21.00 GiB KV cache is needed, 13.25 GiB is there.", ENGINE
        )
        + traceback("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
        + "".join(f"resource_tracker: There appear to be {i} leaked semaphore objects\n" for i in range(30))
        + "[rank0]: destroy_process_group() was not called before shutdown"
    )
    assert len(log) > 5000
    assert actionable_line(log) == (
        "ValueError: To serve at least one request, 21.00 GiB KV cache is needed, 13.25 GiB is there."
    )


def test_a_masked_import_error_names_the_library():
    """vllm#42511: the engine says that a package is missing; it is a library of another CUDA."""
    chained = (
        traceback("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", ENGINE)
        + f"{ENGINE}\n{ENGINE}The above exception was the direct cause of the following exception:\n{ENGINE}\n"
        + traceback(
            "ImportError: Please install mooncake by following the instructions at https://github.com/x", ENGINE
        )
    )
    assert actionable_line(chained).startswith("ImportError: libcudart.so.12: cannot open shared object file")


def test_the_library_wins_even_when_it_comes_second():
    log = traceback("ImportError: Please install mooncake") + traceback(
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory"
    )
    assert "libcudart.so.13" in actionable_line(log)


def test_a_loader_line():
    """Mooncake#3314: exit code 127 and nothing else."""
    line = "mooncake_master: error while loading shared libraries: libcudart.so.12: cannot open shared object file"
    assert actionable_line(line) == line


GLOG = "E1129 15:41:32.119951 13348 real_client.cpp:865] Failed to create client after 20 retries"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
INVALID = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"
DISK = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", ""),
        ("\n\n", ""),
        ("one\ntwo\nthree\n", "three"),
        ("hello\nresource_tracker: leaked semaphore objects\n", "hello"),
        ("api_server.py: error: unrecognized arguments: --block-sise 64\n",) * 2,
        ("ERROR: unknown command line flag 'rpc_prot'\n",) * 2,
        (
            f"{ENGINE}The model's config has no architecture.\n{API}Shutting down\n",
            "The model's config has no architecture.",
        ),
        (f"{GLOG}\nI1129 15:41:33.0 1 x.cpp:1] bye\n", GLOG),
        ("\x1b[31mERROR\x1b[0m something broke\n", "ERROR something broke"),
        (f"{traceback('KeyboardInterrupt')}{DISK}\n", DISK),
        (traceback(OOM, ENGINE) + traceback("vllm.exceptions.EngineDeadError: EngineCore encountered an issue."), OOM),
        (traceback(f"{INVALID}\n  Value error, no such model"), f"{INVALID}: Value error, no such model"),
        (f"Traceback (most recent call last):\n{FRAMES}", "raise"),
    ],
)
def test_other_logs(log, expected):
    assert actionable_line(log).strip() == expected.strip()


def test_a_long_line_is_cut():
    line = actionable_line("ERROR: " + "x" * 100_000)
    assert len(line) == MAX_LENGTH
    assert line.endswith("…")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.def-123456", "abc.def"),
        ('headers={"Authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
        ("token hf_AbCdEfGhIjKlMnOp is invalid", "AbCdEf"),
        ("HF_TOKEN=hf_short123 failed", "short123"),
        ("api_key: 'sk-live-0123456789'", "0123456789"),
        ("password=hunter22 for db", "hunter22"),
        ("https://user:s3cretpw@registry.internal/x", "s3cretpw"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIi"),
        ("AWS_SECRET_ACCESS_KEY: wJalrXUtnFEMI/K7MDENG", "wJalr"),
        ("?access_token=abcdef123456&x=1", "abcdef123456"),
    ],
)
def test_credentials_are_hidden(text, secret):
    assert secret not in redact(text)
    assert "***" in redact(text)
    assert secret not in actionable_line(f"ERROR: {text}")


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: max_model_len 10240 is larger than the number of tokens 4096",
        "RuntimeError: Failed to create client after 20 retries, host 10.0.0.1:50051",
        "KeyError: 'secret'",
    ],
)
def test_ordinary_errors_stay_as_they_are(text):
    assert redact(text) == text


LINE = st.text(max_size=60) | st.sampled_from(
    [
        "Traceback (most recent call last):",
        "ERROR",
        "(A pid=1) ERROR 11-29 15:41:32 [a.py:1] x",
        "  File x",
        "Error: y",
        "://:@",
    ]
)


@settings(deadline=None, max_examples=60)
@given(st.lists(LINE, max_size=60).map("\n".join))
def test_any_log_gives_a_short_line(log):
    line = actionable_line(log)
    assert len(line) <= MAX_LENGTH
    assert "\n" not in line


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300_000,
        "token=" * 50_000,
        "://" + "a:" * 100_000,
        "a_" * 150_000 + "=",
        "ERROR " * 50_000,
        "eyJ" * 100_000,
        "\n" * 300_000,
    ],
)
def test_hostile_logs_are_bounded(text):
    assert len(actionable_line(text)) <= MAX_LENGTH
    assert len(actionable_line(text.replace("=", "=\n"))) <= MAX_LENGTH
