# Every target sets up what it needs by itself, in .venv; nothing is required but Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Twice as many as there are CPUs: tests with real processes wait most of the time.
TESTERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Fewer for tests of short leases, which fail when CPUs are short.
TORTURERS ?= $(shell $(PYTHON) -c 'import os; print(-(-3 * (os.cpu_count() or 1) // 2))')

# Further arguments of pytest. Not by PYTEST_ADDOPTS: tests that start pytest would inherit it.
PYTEST_ARGS ?=

# The pytest marker of the tests that `make torture` runs.
CASES ?= long

# The same for `make test-wheel`; `make test-wheel WHEEL_CASES=again` installs every other new project.
WHEEL_CASES ?= not again

# Tests start hundreds of processes: without bytecode, each would compile all of the sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo chaos soak test torture test-wheel test-pythons test-system check docs format bench bench-sqlite bench-redis bench-capacity bench-web bench-growth bench-startup bench-defaults profile release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.base ## watch a thousand jobs run on an embedded queue
	@$(BIN)/windlass demo

chaos: $(VENV)/.chaos ## throw faults at workers, and check every promise; ARGS="--store postgres --time 5m"
	@$(BIN)/windlass chaos $(ARGS)

soak: $(VENV)/.chaos ## chaos on every store in turn, for hours; TIME=8h ARGS="--rate 150", figures in build/soak.json
	@$(BIN)/python tools/soak.py --time $(or $(TIME),2h) $(ARGS)

test: $(VENV)/.dev ## run every quick test; needs nothing but wheels
	@$(BIN)/python -m pytest --ignore=tests/system --ignore=tests/wheel -m 'not long' --numprocesses=$(TESTERS) --dist=worksteal --durations=10 $(PYTEST_ARGS)

torture: $(VENV)/.dev ## run the tests that are slow by nature, up to minutes each
	@$(BIN)/python -m pytest --ignore=tests/system --ignore=tests/wheel -m '$(CASES)' --numprocesses=$(TORTURERS) --dist=worksteal --durations=10 $(PYTEST_ARGS)

test-wheel: $(VENV)/.dev ## test the wheel in empty environments: on every installed Python, with each extra alone
	@$(BIN)/python -m pytest tests/wheel -m '$(WHEEL_CASES)' --numprocesses=$(TESTERS) --dist=worksteal --durations=10 -o tmp_path_retention_count=1 $(PYTEST_ARGS)

test-pythons: $(VENV)/.dev ## run a quick part of the tests on the other installed versions of Python
	@$(BIN)/python -m tests.wheel.other_pythons $(PYTEST_ARGS)

test-system: $(VENV)/.dev ## run the tests that need Debian's PostgreSQL 15, PgBouncer, pgpool-II, Redis 7.0, Prometheus, Node.js and Chromium
	@$(BIN)/python -m pytest tests/system --numprocesses=auto --dist=worksteal $(PYTEST_ARGS)

check: $(VENV)/.dev ## lint, types, layers, dead code, declared dependencies, words, sizes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=src $(BIN)/lint-imports
	@$(BIN)/vulture
	@$(BIN)/deptry src
	@$(BIN)/python tools/check_words.py
	@$(BIN)/python tools/check_sizes.py

docs: $(VENV)/.docs ## build the documentation site into build/site, and check its links, origins and reference
	@$(BIN)/python -m tools.site

format: $(VENV)/.dev ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.bench ## race the PostgreSQL store against its peers, side by side (half an hour)
	@$(BIN)/python -m benchmarks.postgres

bench-sqlite: $(VENV)/.bench ## race the SQLite store against Huey's, side by side
	@$(BIN)/python -m benchmarks.sqlite

bench-redis: $(VENV)/.bench ## race the Redis store against its peers, side by side (half an hour)
	@$(BIN)/python -m benchmarks.redis

bench-capacity: $(VENV)/.bench ## measure the figures of docs/capacity.md, and write them there (eight minutes)
	@$(BIN)/python -m benchmarks.capacity --page docs/capacity.md

bench-web: $(VENV)/.bench ## measure the web page with ten million jobs on PostgreSQL (half an hour); QUICK=1 a fraction
	@$(BIN)/python -m benchmarks.web $(if $(QUICK),--quick)

bench-growth: $(VENV)/.bench ## measure a store with thirteen million jobs against one with ten thousand (an hour); QUICK=1 a fraction
	@$(BIN)/python -m benchmarks.growth $(if $(QUICK),--quick)

bench-startup: $(VENV)/.bench ## measure what imports, commands and a worker's start take
	@$(BIN)/python -m benchmarks.startup

bench-defaults: $(VENV)/.bench ## race default settings against tuned ones, on PostgreSQL and SQLite
	@$(BIN)/python -m benchmarks.defaults

profile: $(VENV)/.bench ## show where the time of a drain goes, and the cost of a single run
	@$(BIN)/python -m benchmarks.profile
	@$(BIN)/python -m benchmarks.runs

release: $(VENV)/.dev ## build sdist and wheel, check their metadata, and run the demo from an empty environment
	@$(BIN)/python tools/release.py

clean: ## remove what the other targets made
	rm -rf $(VENV) $(VENV)-* build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} +

# ensurepip gives the venv its pip; a failed install leaves no stamp, so the next call tries again.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Windlass needs Python 3.11 or newer; say which: make PYTHON=python3.11")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[top,web]'
	@touch $@

$(VENV)/.chaos: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[chaos]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[dev,bench]'
	@touch $@ $(VENV)/.base $(VENV)/.chaos

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[docs]'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[bench,top]'
	@touch $@ $(VENV)/.base
