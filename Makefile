# `make demo` and `make test` need nothing but python3 (3.11 or newer), venv and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
LOWEST = .venv-lowest
BENCH = .venv-bench
QUICK = not slow and not cluster

# What one process of the tests has compiled from Python, the next one reads.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo install develop test test-cluster test-slow test-lowest mutants bench bench-quick lint types check docs dist clean

help:  ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

demo: install  ## install, and compare four methods on handwritten digits
	$(BIN)/clustpsi run

install: $(VENV)/.installed  ## clustpsi, into .venv

develop: $(VENV)/.developed  ## clustpsi with all that tests and checks need, into .venv

# The stamps make later calls instant; a change of the dependencies installs again.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.documented: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

test: develop  ## the tests
	$(BIN)/python -m pytest -m "$(QUICK)"

test-cluster: develop  ## the tests that start Flower's programs or a Ray cluster
	XLA_FLAGS= $(BIN)/python -m pytest -m cluster

test-slow: develop  ## the tests that take minutes
	XLA_FLAGS= $(BIN)/python -m pytest -m slow

mutants: develop  ## do the tests notice faults? (docs/testing.md)
	$(BIN)/python tests/mutation/mutants.py

# What clustpsi needs directly comes in the lowest version that pyproject.toml allows, everything else in the newest.
$(LOWEST)/.developed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	@touch $@

test-lowest: $(LOWEST)/.developed  ## the tests, with the lowest versions of all dependencies, in .venv-lowest
	$(LOWEST)/bin/python -m pytest -m "$(QUICK)"
	XLA_FLAGS= $(LOWEST)/bin/python -m pytest -m cluster

# PyTorch comes first and stays what it is: what peers ask for would be a larger build of another version.
BENCH_PIP = $(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --constraint benchmarks/peers/torch.txt
$(BENCH)/.loop: pyproject.toml constraints.txt benchmarks/peers/torch.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH_PIP) torch
	$(BENCH_PIP) --constraint constraints.txt psutil --editable .
	@touch $@

# A peer that cannot be installed is missing in the report, and the others are there.
$(BENCH)/.peers: $(BENCH)/.loop
	-$(BENCH_PIP) 'flwr[simulation]==1.41.0'
	-$(BENCH_PIP) 'pfl[pytorch]==0.6.0'
	-$(BENCH_PIP) fedlab==1.3.0
	-$(BENCH_PIP) h5py  # which PFLlib imports, and its checkout does not bring
	@touch $@

bench: $(BENCH)/.peers  ## the same training here and in other frameworks, half an hour (docs/benchmarks.md)
	$(BENCH)/bin/python benchmarks/peers/compare.py

bench-quick: $(BENCH)/.loop  ## against a PyTorch loop, five minutes; names what got slower
	$(BENCH)/bin/python benchmarks/peers/compare.py --quick --output build/bench/quick.jsonl

lint: develop  ## style (ruff), and which module may import which (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: develop  ## types (mypy, strict)
	$(BIN)/mypy

check: lint types test  ## style, types and tests

docs: $(VENV)/.documented  ## the documentation site, into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: develop  ## wheel and source distribution, into dist
	$(BIN)/python -m build --no-isolation

clean:  ## remove all that was made here, .venv included
	rm -rf $(VENV) $(LOWEST) $(BENCH) .mutants build dist src/*.egg-info
