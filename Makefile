# Plain pip in a virtual environment; nothing else is needed but Python 3.11 or newer and make.
PYTHON ?= python3
VENV ?= .venv
PEERS ?= .bench-peers
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# One thread per process: two processes of one thread beat one of two.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo test slow check format bench docs course fuzz dist clean

help:
	@echo "make demo    MNIST addition under five semantics: a table and an HTML report"
	@echo "make test    the test suite           make check   lint, format, types"
	@echo "make bench   measure against peers    make docs    build the documentation site"
	@echo "make fuzz    200,000 mutated texts    make slow    the tests left out of make test"
	@echo "make dist    wheel and sdist          make clean   remove what was built"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Each stamp is a set of extras; it is renewed when the requirements change.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[report]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.core

setup: $(VENV)/.dev

demo: $(VENV)/.core
	$(BIN)/python -m doxa.train

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow"

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m slow

check: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples course
	$(BIN)/ruff format --check src tests benchmarks examples course
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix src tests benchmarks examples course
	$(BIN)/ruff format src tests benchmarks examples course

# Peers to measure against, at pinned versions, in an environment of their own that sees $(VENV) and cannot change it.
$(PEERS)/.done: benchmarks/peers.txt $(VENV)/.dev
	$(BIN)/python -m venv --clear $(PEERS)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	    > $$($(PEERS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/below.pth
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/peers.txt
	@touch $@

# Each script in a process of its own; one that fails does not stop the others, and is named at the end.
bench: $(PEERS)/.done
	@failed=; for script in $$(grep -l '^def rows' benchmarks/*.py | sort); do \
	    echo "== $$script"; $(PEERS)/bin/python $$script || failed="$$failed $$script"; done; \
	$(PEERS)/bin/python benchmarks/table.py || failed="$$failed benchmarks/table.py"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

# The course as Jupyter notebooks, made from the marimo files.
course: $(VENV)/.dev
	@for file in course/[0-9]*.py; do $(BIN)/marimo -q -y export ipynb $$file --sort top-down -f -o $${file%.py}.ipynb; done

fuzz: $(VENV)/.dev
	$(BIN)/python tests/logic/fuzzing.py --count 200000

dist: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) $(PEERS) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
