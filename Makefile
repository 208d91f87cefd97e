# `make demo` and `make test` need nothing but python3 (3.11 or newer), venv and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo install test test-slow lint types check clean

demo: install
	$(BIN)/clustpsi run

install: $(VENV)/.installed

# The stamp makes later calls instant; a change of the dependencies installs again.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

test: install
	$(BIN)/python -m pytest -m "not slow"

test-slow: install
	$(BIN)/python -m pytest -m slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

check: lint types test

clean:
	rm -rf $(VENV) build dist src/*.egg-info
