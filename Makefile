# Every target sets up what it needs: a virtual environment in .venv with the versions in constraints.txt.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format bench docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

# torch goes first and alone: asked for by exact version, pip takes a local CPU build where there is one.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11, or name yours: make PYTHON=python3 ..."; exit 1; }
	@echo "Setting up $(VENV) (a few minutes the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) "$$(grep -i '^torch==' constraints.txt)"
	@$(PIP) --editable '.[plots,pandas,images,pretrained,docs,dev]'
	@touch $@

demo: $(READY) ## train on the paper's first 1-D set and draw its Figure 2
	@$(BIN)/ebreg demo

test: $(READY) ## the test suite, a few minutes
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile

test-slow: $(READY) ## long trainings, killed processes, and a cluster on this machine
	@$(PIP) --editable '.[ray]'
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow

lint: $(READY) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## let ruff rewrite the formatting, and set the line numbers in the pages' links to the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/python docs/code_links.py

bench: $(READY) ## ours beside the direct form and beside peers: ratios of CPU seconds
	@$(PIP) --editable '.[bench]'
	@$(BIN)/python -m benchmarks

docs: $(READY) ## the documentation as HTML under docs/_build
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean: ## remove the virtual environment and everything built
	@rm -rf $(VENV) docs/_build build dist .pytest_cache .mypy_cache .ruff_cache
