# Two targets do all the set-up: `make check` (the main job) and `make test` (everything CI runs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet

.PHONY: check test lint unit models harness soak sglang docs clean

check: $(VENV)/check.stamp
	$(BIN)/hicache-fsm check

test: lint unit models harness check

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/test.stamp
	$(BIN)/python -m pytest -m "not sglang" -n 2

# The TLA+ models, and that model, TLC and the shipped runtime are the same system.
models: $(VENV)/test.stamp
	$(BIN)/hicache-fsm tlc --size small
	$(BIN)/hicache-fsm conform

# Real SGLang: one process at a time, since each brings its own I/O threads.
harness: sglang
	$(BIN)/python -m pytest -m "sglang and not soak"

# Larger runs of the same, by hand.
soak: sglang
	$(BIN)/python -m pytest -m soak

# The two releases that CI runs, or others: make sglang VERSIONS="0.5.20 0.5.21 0.5.22".
sglang: $(VENV)/test.stamp
	$(BIN)/python -m hicache_fsm.sglang.install $(VERSIONS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/check.stamp: $(VENV)/bin/python pyproject.toml
	$(PIP) --editable .
	touch $@

# Torch first and by its exact version: that one has a CPU build, any other would bring CUDA along.
$(VENV)/test.stamp: $(VENV)/check.stamp
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[torch,metrics,fuzz,prove,tlc,test,lint]"
	touch $@

docs: $(VENV)/test.stamp
	$(BIN)/python -m hicache_fsm.tlc.generate
	$(BIN)/hicache-fsm diagram > docs/machines.md
	$(BIN)/hicache-fsm explain --page > docs/invariants.md
	$(BIN)/python -m hicache_fsm.metrics.page > docs/metrics.md
	$(BIN)/python -m hicache_fsm.executor.faults --page > docs/effects.md

clean:
	rm -rf $(VENV) .sglang
