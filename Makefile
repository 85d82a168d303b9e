# `make demo` and `make test` are all that a fresh clone needs, on a machine with make and Python 3.11 or later.
# `make test PYTHON=/path/to/python3` picks the interpreter; `make test ARGS="-k wave"` hands options on to pytest.

.DEFAULT_GOAL := help
.PHONY: help demo test test-spark lint doctest check bench soak soak-short fuzz clean

BIN := .venv/bin
# pip would compile all modules of all packages; Python compiles those that it imports.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile
ARGS ?=

# The first Python that is new enough and can make virtual environments; failing that, one that is new enough.
PYTHON ?= $(shell \
  for need in "ensurepip, venv" "sys"; do \
    for python in python3.13 python3.12 python3.11 python3; do \
      "$$python" -c "import sys; assert sys.version_info >= (3, 11); import $$need" >/dev/null 2>&1 && echo "$$python" && exit; \
    done; \
  done)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/.installed  ## see it work: a live stream, a local Spark, a dashboard
	@$(BIN)/lately demo $(ARGS)

# Files go to the workers in the order of tests/conftest.py, where the slow ones come first.
PYTEST := -m pytest -n auto --dist loadfile --no-loadscope-reorder
test: .venv/.installed  ## run the tests
	@$(BIN)/python $(PYTEST) $(ARGS)

# One environment for each version of Spark, made when it is first asked for. `make test-spark SPARK=4.3 ARGS="-k rows"` runs one
# version; SPARK_TESTS=tests/spark/test_rows.py runs other files. Left out are the benchmarks and the tests that kill processes: they
# take minutes, call nothing of Spark that the others do not, and `make test` runs them.
SPARKS := 4.1 4.2 4.3
SPARK ?= $(SPARKS)
SPARK_TESTS ?= $(filter-out %/test_bench_spark.py %/test_kill.py,$(sort $(wildcard tests/spark/test_*.py)))
test-spark: $(SPARK:%=.venv-spark-%/.installed)  ## run the Spark tests on Spark 4.1, 4.2 and 4.3
	@failed=; for version in $(SPARK); do \
	  echo "Spark $$version: $(words $(SPARK_TESTS)) files of tests"; \
	  .venv-spark-$$version/bin/python $(PYTEST) $(SPARK_TESTS) $(ARGS) || failed="$$failed $$version"; \
	done; \
	if [ -n "$$failed" ]; then echo "tests failed on Spark$$failed" >&2; exit 1; fi

lint: .venv/.installed  ## style, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

doctest: .venv/.installed  ## run the examples in the docstrings
	@$(BIN)/python -m pytest --doctest-modules src $(ARGS)

check: test soak-short lint doctest  ## all tests but the slow ones, lint and doctest

bench: .venv/.installed  ## measure speed, size and error
	@$(BIN)/lately bench all

soak: .venv/.installed  ## run the long and the slow tests, for hours
	@LATELY_SOAK=1 $(BIN)/python -m pytest -m "long or slow" $(ARGS)

soak-short: .venv/.installed  ## run the long tests only, for minutes
	@LATELY_LONG=1 $(BIN)/python $(PYTEST) -m long $(ARGS)

# `make fuzz SECONDS=1200 ARGS=tests/exact` explores one folder for twenty minutes; SEED=… repeats a round that failed.
SECONDS ?= 600
fuzz: .venv/.installed  ## run the property tests with new seeds
	@$(BIN)/python tests/fuzz.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

clean:  ## remove .venv and its like, caches and build output
	@rm -rf .venv .venv-spark-* .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache build dist
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call new_venv,FOLDER) makes a virtual environment, or says why it cannot.
define new_venv
python="$(PYTHON)"; \
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
echo "making $(1) with $$("$$python" --version)"; \
"$$python" -m venv --clear $(1)
endef

$(BIN)/python:
	@printf "[1/3] "; $(call new_venv,.venv)

# The Spark of `make test` and `make demo` is 4.1: the newest for which Kafka, Delta and Iceberg have connectors (pyproject.toml).
.venv/.installed: pyproject.toml $(BIN)/python
	@echo "[2/3] installing lately and what it stands on (NumPy, Numba, Arrow; a minute or two, once)"
	@$(PIP) --editable .
	@echo "[3/3] installing Spark, and the tools for tests, lint and bench (some minutes, once)"
	@$(PIP) --editable '.[dev,spark-4-1]'
	@touch $@

.venv-spark-%/.installed: pyproject.toml
	@$(if $(filter $*,$(SPARKS)),,echo "no tests for Spark $*; SPARK is one or more of $(SPARKS)" >&2; exit 1)
	@[ -x .venv-spark-$*/bin/python ] || { printf "[1/2] "; $(call new_venv,.venv-spark-$*); }
	@echo "[2/2] installing lately, Spark $* and the tools for tests (some minutes, once)"
	@.venv-spark-$*/$(PIP:.venv/%=%) --editable '.[dev,spark-$(subst .,-,$*)]'
	@touch $@
