# One gate at home and in CI. Every target that needs the virtual environment makes it first, so a fresh clone needs nothing
# but make and a plain CPython 3.11 or newer on the PATH.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SERVES := $(VENV)/.serves
PYTEST := $(BIN)/python -m pytest -q

.DEFAULT_GOAL := help
.PHONY: help setup engines run test check format bench spec soak clean

help:  ## this list
	@echo "Dovetail: a durable queue in one process"
	@echo
	@awk 'BEGIN {FS = ":.*  ## "} /^[a-z]+:.*  ## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  STORE=local:./data HTTP=127.0.0.1:9324 NATIVE=off make run   # where the data lies and where it listens"
	@echo "  make test T='tests/doors -k drain'                # only some tests"

setup: $(READY)  ## make the virtual environment in .venv (quick when it is there)

# What a node needs, and no more: `make run` on a fresh clone fetches six small packages.
# setuptools goes in first and the build runs without isolation, so that a second run fetches nothing.
$(SERVES): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Dovetail needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e .
	@touch $@

# With the tools, the clients that the tests drive the server with, and the lab.
$(READY): $(SERVES)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,lab]'
	@touch $@

# Redis, RabbitMQ, memcached, HAProxy, ElasticMQ and Kafka are never needed to run by themselves. Where they cannot be had the tests that use
# them are skipped and say so; CI is where nothing is skipped. What apt installs it would also start: a policy forbids that, and where the
# machine has none there is one for as long as apt runs.
# The hosts of tests/network are network namespaces, which `ip` makes.
ENGINES := redis-server rabbitmq-server memcached haproxy ip
POLICY := /usr/sbin/policy-rc.d

engines: setup
	@PATH="$$PATH:/usr/sbin"; export DEBIAN_FRONTEND=noninteractive; missing=; failed=; \
	for engine in $(ENGINES); do command -v $$engine >/dev/null || missing="$$missing $$engine"; done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  [ -e $(POLICY) ] || { trap 'rm -f $(POLICY)' EXIT; trap 'exit 1' HUP INT TERM; printf '#!/bin/sh\nexit 101\n' >$(POLICY); chmod +x $(POLICY); }; \
	  packages=$$(echo "$$missing " | sed 's/ ip / iproute2 /'); \
	  { apt-get install -qq -y --no-install-recommends $$packages || { apt-get update -qq; \
	    for engine in $$packages; do apt-get install -qq -y --no-install-recommends $$engine; done; }; } >/dev/null 2>&1; \
	fi; \
	for engine in $$missing; do command -v $$engine >/dev/null || { \
	  failed=1; echo "$$engine is not installed and could not be: what is measured beside it is skipped"; }; done; \
	[ -z "$$failed" ] || [ "$${CI:-}" != true ]
	@$(BIN)/python -m dovetail.lab.drivers.elasticmq >/dev/null || { \
	  echo "ElasticMQ could not be had: what is measured beside it is skipped"; [ "$${CI:-}" != true ]; }
	@$(BIN)/python -m dovetail.lab.sparkkafka >/dev/null || { \
	  echo "Kafka could not be had: what runs on it or is measured beside it is skipped"; [ "$${CI:-}" != true ]; }

STORE ?= local:./data
HTTP ?= 127.0.0.1:9324
NATIVE ?= 127.0.0.1:9325
run: $(SERVES)  ## start a node on local:./data
	@exec $(BIN)/dovetail serve --store $(STORE) --http $(HTTP) --native $(NATIVE)

T ?= tests
test: setup engines  ## every test but the soak, with the engines they need
	@$(PYTEST) -m "not soak" $(T)

check: setup  ## format, lint, types, import rules and the fast tests: before every commit
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(PYTEST) tests/test_architecture.py
	@$(PYTEST) -m "not slow and not soak" --ignore tests/test_architecture.py tests

format: setup  ## write the code the way check wants it
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup engines  ## run every scenario of the lab and print its figures
	@missed=; for name in $$($(BIN)/dovetail lab list --names); do \
	  $(BIN)/dovetail lab run $$name || missed="$$missed $$name"; echo; \
	done; if [ -n "$$missed" ]; then echo "not kept:$$missed"; exit 1; fi

spec: setup  ## model-check the specification (spec/), and each safeguard left out
	@$(BIN)/python spec/check.py

soak: setup engines  ## the long tests: kill -9 by the hundred, long simulations
	@$(PYTEST) -m soak $(T)

clean:  ## remove the virtual environment and every cache (never ./data)
	@rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
