# `make demo` and `make test` do everything on a fresh machine; both call `make setup` first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# How many processes run tests side by side; tests/conftest.py says which tests stay together.
WORKERS ?= 2
MINUTES ?= 10

# How long `make fuzz` and `make soak` last is MINUTES.
.PHONY: setup demo recipes test test-trackers fuzz test-slow soak lint docs screenshots tables benchmarks-page papers format clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shoal needs Python 3.11 or newer")'
	@echo "installing torch and the packages of pyproject.toml into .venv: minutes, and gigabytes on disk"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[partition,mpi,pyg,report,sql,tensorboard,tune,docs,dev]'
	touch $@

demo: setup
	$(BIN)/shoal demo

recipes: setup
	$(BIN)/shoal recipes --run

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -m 'not slow' --durations=10 -n $(WORKERS) --no-loadscope-reorder

# Experiment trackers, each the real package, offline. W&B and MLflow are large: they have an environment of their own,
# which takes everything else from .venv.
TRACKERS := build/trackers
$(TRACKERS)/.installed: $(STAMP)
	test -x $(TRACKERS)/bin/python || $(BIN)/python -m venv $(TRACKERS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$($(TRACKERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/setup.pth
	$(TRACKERS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $$($(BIN)/python -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*extras["tensorboard"], *extras["wandb"], *extras["mlflow"])')
	touch $@

test-trackers: $(TRACKERS)/.installed
	SHOAL_TRACKERS=1 PYTHONPATH=src $(TRACKERS)/bin/python -m pytest tests/training/test_loggers.py

# Mutated files for every reader, for so many minutes; what fails is kept in tests/fuzz/corpus, which `make test` reads.
fuzz: setup
	$(BIN)/python tests/fuzz/run_fuzz.py --minutes $(MINUTES)

test-slow: setup
	$(BIN)/python -m pytest -m slow --durations=10

# Runs of all methods, killed at random moments.
soak: setup
	NUMBA_NUM_THREADS=1 NUMBA_THREADING_LAYER=workqueue SHOAL_THREADS=1 PYTHONPATH=tests:tests/reliability \
	$(BIN)/python tests/reliability/kills.py build/soak --minutes $(MINUTES) --kills 100000 --out build/soak.json

# Tables of settings in docs/, made from what components declare.
tables: setup
	$(BIN)/python -m shoal.commands.components docs/*.md

# docs/benchmarks.md, the marked parts of other pages and docs/papers, made from benchmarks/results.
benchmarks-page: setup
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/papers/pages.py

# The papers' experiments, which go on where they were stopped, and docs/papers; `--again` and `--profile regular` go to PAPERS.
papers: setup
	$(BIN)/python benchmarks/papers/run.py $(PAPERS)

# The documentation site, in build/site; its tables and pictures first.
docs: tables
	$(BIN)/python website/pictures.py
	$(BIN)/python website/build.py

# The screenshots of docs/pictures, of the site and of runs on embedded data; needs Chromium.
screenshots: docs
	$(BIN)/python website/screenshots.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
