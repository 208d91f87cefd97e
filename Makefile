# `make demo` and `make test` need nothing but python3 (3.11 or newer), venv and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo install develop test test-slow mutants lint types check clean

demo: install
	$(BIN)/clustpsi run

install: $(VENV)/.installed

develop: $(VENV)/.developed

# The stamps make later calls instant; a change of the dependencies installs again.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	@touch $@

test: develop
	$(BIN)/python -m pytest -m "not slow"

test-slow: develop
	$(BIN)/python -m pytest -m slow

# Do the tests notice faults?  See docs/testing.md.
mutants: develop
	$(BIN)/python tests/mutation/mutants.py

lint: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: develop
	$(BIN)/mypy

check: lint types test

clean:
	rm -rf $(VENV) .mutants build dist src/*.egg-info
