# Everything happens in .venv, which is made on first use and again when the dependencies change.
VENV := .venv
BIN := $(VENV)/bin
# Each test runs on one thread (tests/conftest.py), so two processes fill two cores.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
STAMP := $(VENV)/.installed
# The first interpreter between 3.10 and 3.13; choose another with `make PYTHON=/path/to/python ...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo "$$p" && break; done)

.DEFAULT_GOAL := help
.PHONY: help demo test browser lint slow gpu torture torture-full bench bench-gpu clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(STAMP)  ## learn twelve tasks one after another and write demo/report.html (about 6 minutes)
	$(BIN)/tss demo

test: lint browser  ## lint, types and the default tests (below 10 minutes, no network)
	$(PYTEST)

# The page is tested in Debian's Chromium; where it cannot be installed, those tests skip and say so.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing chromium for the page's tests" && \
		apt-get install -y -qq chromium >/dev/null 2>&1; } || echo "no chromium: the page's tests will be skipped"

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(STAMP)  ## the tests that take long
	$(PYTEST) -m "slow and not gpu"

gpu: $(STAMP)  ## the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

torture: $(STAMP)  ## faults on purpose: kills, full disks, hostile files, bad input (about 10 minutes); results/reliability.md
	$(BIN)/python -m torture

torture-full: $(STAMP)  ## the same with the numbers of a release (hours); what was reached with this code is not repeated
	$(BIN)/python -m torture --form full

# DATA: the folder of `tss data prepare`; PEER: a Python with the package adapters (pip install adapters, in its own venv).
DATA ?= data
PEER ?=
BENCH := OMP_NUM_THREADS=1 $(BIN)/python benchmarks
WITH_PEER := $(if $(PEER),--peer-python $(PEER))

bench: $(STAMP)  ## ratios against peers on the CPU (about half an hour; DATA=folder, PEER=python); results/performance.md
	-$(BENCH)/bytes_per_task.py $(WITH_PEER)
	-$(BENCH)/many_tasks_in_a_batch.py --compile-seconds 60 --out results/performance/many_tasks_cpu.json
	-$(BENCH)/training_step.py $(WITH_PEER)
	-$(BENCH)/precision.py
	-$(BENCH)/importance.py
	-$(BENCH)/padding.py --data $(DATA) --packed
	-$(BENCH)/task_matrix.py
	-$(BENCH)/growth.py --picture results/growth.svg
	-$(BENCH)/start_up.py
	-$(BENCH)/beams.py
	$(BENCH)/performance_report.py

bench-gpu: $(STAMP)  ## the ratios that need a GPU, at BART-large's and bart-mini's shapes (DATA=folder)
	-$(BENCH)/many_tasks_in_a_batch.py --device cuda --shape bart-large --out results/performance/many_tasks_gpu.json
	-$(BENCH)/training_step.py --device cuda --shape bart-large
	-$(BENCH)/training_step.py --device cuda --shape mini
	-$(BENCH)/importance.py --device cuda --shape bart-large
	-$(BENCH)/padding.py --data $(DATA) --device cuda --shape bart-large
	-$(BENCH)/beams.py --device cuda --rows 64 --dtype bfloat16
	$(BENCH)/performance_report.py

clean:  ## remove .venv and what tools leave behind
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find tss tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || test -n "$(PYTHON)" || \
		{ echo "error: no Python from 3.10 to 3.13 found; install one or say make PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV); the first time takes some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@
