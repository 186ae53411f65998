# Two commands do everything on a fresh machine: `make tune` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# Interpreters without a constraints file (newer ones) resolve freely.
CONSTRAINTS := $(wildcard constraints/python$(VERSION).txt)
SECOND := $(shell .ci/find-python 3.12)
SECOND_VENV := .venv-3.12

DB ?= sqlite:///meshwright.db

.PHONY: env tune test lint bench bench-grid screenshots clean

env: $(VENV)/ready

$(VENV)/ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) .ci/make_environment.py $(VENV) $(if $(CONSTRAINTS),--constraints $(CONSTRAINTS))
	touch $@

# The main job: the environment, then a plan for Wan 2.1 on eight v5e chips, stored in an SQLite file.
tune: env
	$(BIN)/meshwright tune wan2.1-t2v-1.3b --shape 832x480x81 --slice v5e-2x4 --db $(DB)

# The whole suite on $(PYTHON), then the tests that face the compiler on Python 3.12 if it is there and another one.
test: env
	$(BIN)/python -m pytest
ifneq ($(SECOND),)
ifneq ($(VERSION),3.12)
	$(MAKE) test-second
endif
endif

.PHONY: test-second
test-second: $(SECOND_VENV)/ready
	$(SECOND_VENV)/bin/python -m pytest -m compiler
	$(SECOND_VENV)/bin/python -m pytest -m "not compiler" tests/adapters/jax/hlo tests/adapters/jax/screen

$(SECOND_VENV)/ready: pyproject.toml constraints/python3.12.txt
	$(SECOND) .ci/make_environment.py $(SECOND_VENV) --constraints constraints/python3.12.txt
	touch $@

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: env
	$(BIN)/python -m benchmarks

# The grid of the field from cold and from warm; a run that was stopped goes on.
bench-grid: env
	$(BIN)/python benchmarks/grid.py

# The dashboard's pages from the tests' Wan study; needs chromium.
screenshots: env
	$(BIN)/python -m tests.browser.screenshots docs/screenshots

clean:
	rm -rf $(VENV) $(SECOND_VENV)
