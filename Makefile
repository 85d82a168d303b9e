# `make demo` and `make test` are all that a fresh clone needs, on a machine with make and Python 3.11 or later.
# `make test PYTHON=/path/to/python3` picks the interpreter; `make test ARGS="-k wave"` hands options on to pytest.

.DEFAULT_GOAL := help
.PHONY: help demo test lint doctest check bench soak fuzz clean

BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
ARGS ?=

# The first Python that is new enough and can make virtual environments; failing that, one that is new enough.
PYTHON ?= $(shell \
  for need in "ensurepip, venv" "sys"; do \
    for python in python3.13 python3.12 python3.11 python3; do \
      "$$python" -c "import sys; assert sys.version_info >= (3, 11); import $$need" >/dev/null 2>&1 && echo "$$python" && exit; \
    done; \
  done)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: .venv/.installed  ## see it work: a live stream, a local Spark, a dashboard
	@$(BIN)/lately demo $(ARGS)

test: .venv/.installed  ## run the tests
	@$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

lint: .venv/.installed  ## style, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

doctest: .venv/.installed  ## run the examples in the docstrings
	@$(BIN)/python -m pytest --doctest-modules src $(ARGS)

check: test lint doctest  ## test, lint and doctest

bench: .venv/.installed  ## measure speed, size and error
	@$(BIN)/lately bench all

soak: .venv/.installed  ## run the slow tests
	@LATELY_SOAK=1 $(BIN)/python -m pytest -m slow $(ARGS)

# `make fuzz SECONDS=1200 ARGS=tests/exact` explores one folder for twenty minutes; SEED=… repeats a round that failed.
SECONDS ?= 600
fuzz: .venv/.installed  ## run the property tests with new seeds
	@$(BIN)/python tests/fuzz.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

clean:  ## remove .venv, caches and build output
	@rm -rf .venv .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache build dist
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then \
	  echo "lately needs Python 3.11 or later; none of python3.13, python3.12, python3.11 and python3 is that." >&2; \
	  echo "Install one, or say where it is: make test PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "$$python is not a Python 3.11 or later; name another: make test PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python cannot make a virtual environment: its ensurepip or venv module is missing." >&2; \
	  echo "On Debian and Ubuntu: sudo apt install python3-venv. Or name another: make test PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	echo "[1/3] making .venv with $$("$$python" --version)"; \
	"$$python" -m venv --clear .venv

.venv/.installed: pyproject.toml $(BIN)/python
	@echo "[2/3] installing lately and what it stands on (NumPy, Numba, Arrow; a minute or two, once)"
	@$(PIP) --editable .
	@echo "[3/3] installing Spark, and the tools for tests, lint and bench (some minutes, once)"
	@$(PIP) --editable '.[dev]'
	@touch $@
