# make demo   set everything up and run the main job on the embedded task
# make test   set everything up and run the tests
# make lint   ruff and mypy
# make docs   the site, into docs/_build/html; a warning is an error
# make torture   every fault at every moment, 200 kills; writes docs/torture.md
# make cluster   a grid on Ray clusters in this machine whose nodes are lost (installs Ray)
# make fuzz   a million damaged files for the loaders
# make sbom   what a release consists of, as CycloneDX JSON under dist/ (no network)
# make audit   bandit on the code, pip-audit on the pinned versions (needs the network)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs torture cluster fuzz audit sbom clean

demo: $(VENV)/.installed
	$(BIN)/robustda demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --fresh-env --quiet docs docs/_build/html
	@echo "open docs/_build/html/index.html in a browser"

torture: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python tests/torture.py $(ARGS)

cluster: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray]'
	$(BIN)/python -m pytest tests/test_bench_ray.py $(ARGS)

fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python tests/fuzz.py $(ARGS)

audit: $(VENV)/.installed-audit
	$(BIN)/bandit --quiet --recursive src --configfile pyproject.toml
	timeout 120 $(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip || test $$? -eq 124

sbom: $(VENV)/.installed-dev
	$(BIN)/python tools/sbom.py $(ARGS)

clean:
	rm -rf $(VENV) build dist docs/_build src/*.egg-info

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "robustda needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,lint]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-audit: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[audit]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@ $(VENV)/.installed
