# make demo     a pool of two real engines on a real cluster, to Ready and verified reuse
# make test     every test
# make negative every case of the negative suite, with real engines; half an hour
# make drill    every drill (or DRILLS=NAME,NAME) with real engines and store; writes docs/drills-report.md; 20 minutes
# make soak     ten minutes of kills, edits and scale changes under requests
# make fuzz     hostile input for every parser, 10,000 examples each; an hour
# make verify   generated files are current, style, types and layers hold
# make bench    figures, as ratios against a reference of the same run
# make bench-scale  what the operator costs with 1,000 pools and 25,000 pods; half an hour
# make clean    stops the cluster and removes the environment; the cache of builds stays

SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
STAGE := hack/stage
CACHE := $(or $(KVCP_CACHE),$(HOME)/.cache/kvcachepool)
PYTEST := $(PY) -m pytest -q

.PHONY: drill fuzz soak negative help packages setup tools images cluster-up cluster-down demo demo-down test test-fast test-cluster verify generate fmt lock bench bench-scale clean

help:
	@sed -n 's/^# make /make /p' Makefile

packages:
	@$(STAGE) "Debian packages" e2e/setup/debian-packages.sh

setup:
	@$(STAGE) "Python environment" hack/bootstrap.sh

# What needs no cluster, with the nightly number of examples (KVCP_FUZZ to choose another one).
fuzz: setup
	@$(STAGE) "fuzzing" env KVCP_FUZZ=$(or $(KVCP_FUZZ),10000) $(PYTEST) -n 2 tests/fuzz

tools: packages setup
	@$(STAGE) "cluster programs" $(PY) -m e2e.cluster build

images: packages setup
	@$(STAGE) "images" $(PY) -m images.build all

cluster-up: tools
	@$(STAGE) "cluster" $(PY) -m e2e.cluster up

cluster-down: setup
	@$(PY) -m e2e.cluster down

demo: tools images
	@$(STAGE) "demo" $(PY) -m e2e.demo up

demo-down: setup
	@$(PY) -m e2e.demo down

# What needs no cluster, in about a minute.
test-fast: setup
	@$(STAGE) "unit, golden and wiring tests" $(PYTEST) -n 2 tests/unit tests/golden tests/wiring tests/fuzz

test: test-fast tools
	@$(STAGE) "chart tests" $(PYTEST) tests/chart
	@$(STAGE) "API server tests" $(PYTEST) tests/apiserver
	@$(MAKE) --no-print-directory images
	@$(STAGE) "cluster tests" $(PYTEST) e2e/tests

test-cluster: tools images
	@$(STAGE) "cluster tests" $(PYTEST) e2e/tests

negative: tools images
	@$(STAGE) "negative suite" env KVCP_NEGATIVE=all $(PYTEST) -s e2e/tests/test_negative.py

drill: tools images
	@$(STAGE) "drills" env KVCP_DRILLS=$(or $(DRILLS),all) $(PYTEST) -s e2e/tests/test_y_drills.py \
		$(if $(DRILLS),,e2e/tests/test_stranded.py::test_engines_answer_while_another_master_takes_over)

soak: tools images
	@$(STAGE) "soak" env KVCP_SOAK_SECONDS=600 $(PYTEST) -s e2e/tests/test_y_soak.py

generate: setup
	@$(PY) -m hack.generate

fmt: setup
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format --quiet .

verify: setup
	@$(STAGE) "generated files" hack/verify-generated.sh
	@$(STAGE) "ruff" .venv/bin/ruff check .
	@$(STAGE) "ruff format" .venv/bin/ruff format --check .
	@$(STAGE) "mypy" .venv/bin/mypy --strict operator/kvcachepool e2e images hack
	@$(STAGE) "import-linter" .venv/bin/lint-imports

# Resolves the Python dependencies anew; pyproject.toml has the bounds.
lock: setup
	@.venv/bin/uv pip compile -q pyproject.toml --universal --generate-hashes --no-header -o requirements/operator.lock --upgrade
	@.venv/bin/uv pip compile -q pyproject.toml --group dev --universal --generate-hashes --no-header -o requirements/dev.lock --upgrade

bench: tools
	@$(PY) -m e2e.bench

bench-scale: tools
	@$(PY) -m e2e.bench --scale 1000 20000

clean:
	@if [[ -x .venv/bin/python ]]; then $(PY) -m e2e.cluster down --purge; fi
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
