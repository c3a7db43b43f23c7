# TamboMQ. `make` alone lists what there is to do.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
ARGS ?=
# Processes that run tests: four keep two cores busy.
WORKERS ?= 4

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt
# The tests that need Spark go to one process, as a group, and each process has servers of its own.
# With bytecode: without, each process that a test starts compiles everything anew.
PYTEST := env PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
RULES := tests/test_house_rules.py tests/test_rules_can_fail.py
# `make check` runs those.
NOT_RULES := $(addprefix --ignore=,$(RULES))
QUICK := $(NOT_RULES) -m "not slow and not jvm and not interop"
CHECKED := src tests $(dir $(wildcard benchmarks/__init__.py))

.DEFAULT_GOAL := help
.PHONY: help run spark test test-all budget check servers peers interop matrix package mutants chaos soak bench docs site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.serve ## start everything on this machine; ARGS="--redis-port 7000"
	@exec $(BIN)/tambo serve $(ARGS)

spark: $(VENV)/.spark ## add Spark, for `tambo pipeline` and tambomq.spark

test: $(VENV)/.dev ## run the quick tests; ARGS="-k rsmq"
	@exec $(PYTEST) $(QUICK) $(ARGS)

test-all: $(VENV)/.dev ## the slow ones and those that start Java too
	@exec $(PYTEST) $(NOT_RULES) -m "not interop" --hypothesis-profile=ci $(ARGS)

budget: $(VENV)/.dev ## run the quick tests, and show which took longest
	@mkdir -p build
	@$(PYTEST) $(QUICK) --junit-xml=build/budget.xml $(ARGS); status=$$?; \
	  $(BIN)/python -m tests.budget build/budget.xml; exit $$status

check: $(VENV)/.dev ## lint, format, types, import contracts, house rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CHECKED)
	$(BIN)/lint-imports --config importlinter.ini
	$(PYTEST) -q $(RULES)

servers: $(VENV)/.dev # every Redis and Valkey the tests know; builds Redis 8 once
	@exec $(BIN)/python -m tests.servers.binaries

peers: servers # all that the tests of `make interop` speak with
	@scripts/peers
	@scripts/install-chromium
	@scripts/install-shells

interop: peers ## run the tests against foreign clients and servers
	@exec $(PYTEST) -m interop $(ARGS)

matrix: servers ## kill Spark's queries at every point, on every protocol and server
	@TAMBO_TEST_MATRIX=all exec $(PYTEST) $$(grep -rlw --include='test_*.py' sampling tests) $(ARGS)

package: $(VENV)/.dev ## build the wheel, install it where nothing else is, and try it
	@exec $(BIN)/python -m pytest tests/package $(ARGS)

mutants: $(VENV)/.dev ## plant faults, and see that the tests named for them fail
	@exec $(PYTEST) tests/mutants $(ARGS)

chaos: $(VENV)/.dev ## let faults happen to all protocols; ARGS="--minutes 10 --seed 7"
	@exec $(BIN)/python -m tests.chaos $(ARGS)

soak: $(VENV)/.dev ## load for hours, with a fault now and then; ARGS="--hours 8 --dir build/soak"
	@exec $(BIN)/python -m tests.chaos.soak $(ARGS)

bench: $(VENV)/.dev ## measure, against the clients in use
	@scripts/peers
	@scripts/install-nats
	@exec $(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.dev ## run what the documentation shows
	@exec $(BIN)/python -m pytest tests/test_docs.py $(ARGS)

site: $(VENV)/.docs ## build the documentation as a website, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/site/index.html"

clean: ## forget the environment and every cache inside the repository
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks scripts tests/peers -depth \
	  \( -name __pycache__ -o -name '*.egg-info' -o -name node_modules -o -name .venv \) -exec rm -rf {} +

$(BIN)/python:
	@PYTHON='$(PYTHON)' scripts/venv $(VENV)

# Stamps: nothing is installed twice unless one of these two files changed.
$(VENV)/.serve: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[serve]'
	@touch $@

$(VENV)/.spark: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[serve,spark]'
	@touch $@ $(VENV)/.serve

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[all,dev]'
	@touch $@ $(VENV)/.spark $(VENV)/.serve

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[docs]'
	@touch $@
