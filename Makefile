# The two commands of the README, and what goes with them. Every target makes its own .venv.

VENV := .venv
BIN := $(VENV)/bin
RESULT := result
WORKERS ?= 2
# The first Python that is new enough; set PYTHON to choose another.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: run test lint docs viewer papers clean
.DELETE_ON_ERROR:

run: $(VENV)/installed
	$(BIN)/bhclust demo --out $(RESULT)
	@echo "open $(abspath $(RESULT))/report.html"

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Needs node and npm; the result is kept in the repository, so that nobody else does.
viewer:
	cd src/bhclust/viewer/js && npm ci --ignore-scripts --no-audit --no-fund && npm run --silent build

# Every table and figure of the papers; goes on where a killed run stopped. ARGS=--quick: a smoke run.
papers: $(VENV)/installed-papers
	$(BIN)/python benchmarks/papers/run_all.py $(ARGS)

# The stamp files are newer than pyproject.toml as long as what is installed is what it asks for.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "bhclust needs Python 3.11 or newer"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-lint: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[lint]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-papers: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[papers]'
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) $(RESULT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		docs/api docs/auto_gallery docs/sg_execution_times.rst

# Warnings are errors; links between pages, formulas and examples of the gallery are all checked.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -E -b html -d build/doctrees docs build/docs
	@echo "open $(abspath build/docs)/index.html"

$(VENV)/installed-docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/installed
