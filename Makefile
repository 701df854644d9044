# Every target sets up what it needs by itself, in .venv; nothing is required but Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Twice as many as there are CPUs: tests with real processes wait most of the time.
TESTERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Fewer for tests of short leases, which notice when nobody has time for them.
TORTURERS ?= $(shell $(PYTHON) -c 'import os; print(-(-3 * (os.cpu_count() or 1) // 2))')

# Which of them `make torture` runs.
CASES ?= long

# Tests start hundreds of processes: without bytecode, each would compile all of the sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test torture test-system check format bench bench-sqlite bench-capacity profile clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.base ## watch a thousand jobs run on an embedded queue
	@$(BIN)/windlass demo

test: $(VENV)/.dev ## run every quick test that needs nothing but wheels
	@$(BIN)/python -m pytest --ignore=tests/system -m 'not long' --numprocesses=$(TESTERS) --dist=worksteal

torture: $(VENV)/.dev ## run the tests that are slow by nature, up to minutes each
	@$(BIN)/python -m pytest --ignore=tests/system -m '$(CASES)' --numprocesses=$(TORTURERS) --dist=worksteal

test-system: $(VENV)/.dev ## run the tests that need Debian's PostgreSQL 15, PgBouncer, Prometheus and Node.js
	@$(BIN)/python -m pytest tests/system --numprocesses=auto --dist=worksteal

check: $(VENV)/.dev ## lint, types, layers, dead code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=src $(BIN)/lint-imports
	@$(BIN)/vulture

format: $(VENV)/.dev ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.bench ## race the PostgreSQL store against its peers, side by side (half an hour)
	@$(BIN)/python -m benchmarks.postgres

bench-sqlite: $(VENV)/.bench ## race the SQLite store against Huey's, side by side
	@$(BIN)/python -m benchmarks.sqlite

bench-capacity: $(VENV)/.bench ## measure what docs/capacity.md tells, and put it there (eight minutes)
	@$(BIN)/python -m benchmarks.capacity --page docs/capacity.md

profile: $(VENV)/.bench ## show where the time of a drain goes, and what a run takes by itself
	@$(BIN)/python -m benchmarks.profile
	@$(BIN)/python -m benchmarks.runs

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} +

# ensurepip gives the venv its pip; a failed install leaves no stamp, so the next call tries again.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Windlass needs Python 3.11 or newer; say which: make PYTHON=python3.11")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[dev,bench]'
	@touch $@ $(VENV)/.base

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[bench]'
	@touch $@ $(VENV)/.base
