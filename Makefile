# make demo      set up, then explain a recording that ships with ullage (no torch, no GPU)
# make test      set up, then run every test: C++, C++ under sanitizers, a short fuzz, Python
# make check     all that must hold before a change lands: format, lint, types, architecture, docstrings, tests
# make bench     time ullage beside its peers (installs torch, makes recordings of 1 GB)
# make format    rewrite the sources in the one format
# make clean     remove everything that make made
#
# Everything is installed into .venv and built in build/; a second run only redoes what a change calls for.

PYTHON ?= python3
STRICT ?= OFF
# A hang is a failure too.
TIME_LIMIT_S ?= 300
FUZZ_RUNS ?= 3000
FUZZ_SEED ?= 2
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
BENCH_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WITH_VENV := PATH="$(CURDIR)/$(BIN):$$PATH"
EXAMPLE := examples/train_leak.pickle.xz

# Folders are listed too: their times change when a file comes or goes.
list = $(shell find $(1) -name __pycache__ -prune -o -print 2>/dev/null)
CPP_SOURCES = $(shell find cpp -name '*.cpp' -o -name '*.hpp')

# The requirements of one table of pyproject.toml, so that they are written down once.
requirements = $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))$(1), sep='\n')"

.PHONY: venv demo test test-cpp test-sanitized test-python check lint types architecture bench format clean
.DELETE_ON_ERROR:

venv: $(VENV)/installed $(VENV)/tools-test

demo: $(VENV)/installed
	$(BIN)/ullage explain $(EXAMPLE)

# Python comes last: its closing line is the verdict.
test: test-cpp test-sanitized test-python

check: lint types architecture test

# --- the environment ---

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo "ullage needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip" 2>/dev/null || .ci/debian-package python3-venv "Python's venv module"
	@$(PYTHON) -c "import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_path('include') + '/Python.h'))" || \
	  .ci/debian-package python3-dev "Python's C headers"
	$(PYTHON) -m venv $(VENV)

$(VENV)/tools-build: pyproject.toml | $(BIN)/python
	$(call requirements,['build-system']['requires']) > $@.txt
	$(PIP) -r $@.txt cmake ninja
	@touch $@

$(VENV)/tools-test: pyproject.toml | $(BIN)/python
	$(call requirements,['project']['optional-dependencies']['test']) > $@.txt
	$(PIP) -r $@.txt
	@touch $@

$(VENV)/tools-check: pyproject.toml | $(BIN)/python
	$(call requirements,['project']['optional-dependencies']['check']) > $@.txt
	$(PIP) -r $@.txt
	@touch $@

# Without isolation the build folder keeps its meaning from one build to the next, and C++ is rebuilt piece by piece.
$(VENV)/installed: $(VENV)/tools-build pyproject.toml CMakeLists.txt $(call list,cpp/core cpp/bindings src)
	$(WITH_VENV) $(PIP) --no-build-isolation .
	@touch $@

$(VENV)/torch-$(TORCH_VERSION): | $(BIN)/python
# The build for CPUs, which is a tenth of the size, where its index can be reached; then what it needs, or any build.
	@$(PIP) --no-deps --retries 1 --timeout 20 --index-url $(TORCH_INDEX) torch==$(TORCH_VERSION) 2>/dev/null || true
	$(PIP) torch==$(TORCH_VERSION)
	@touch $@

# --- tests ---

/usr/include/doctest/doctest.h:
	.ci/debian-package doctest-dev "the C++ test library doctest"

configure = $(WITH_VENV) cmake -S . -B $(1) -G Ninja -DULLAGE_TESTS=ON -DULLAGE_PYTHON=OFF

build/cpp/build.ninja: CMakeLists.txt | $(VENV)/tools-build /usr/include/doctest/doctest.h
	$(call configure,build/cpp) -DCMAKE_BUILD_TYPE=Release > /dev/null

build/sanitized/build.ninja: CMakeLists.txt | $(VENV)/tools-build /usr/include/doctest/doctest.h
	$(call configure,build/sanitized) -DULLAGE_SANITIZE=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 > /dev/null

test-cpp: build/cpp/build.ninja
	@$(WITH_VENV) cmake -DULLAGE_STRICT=$(STRICT) build/cpp > /dev/null
	$(WITH_VENV) cmake --build build/cpp
	$(WITH_VENV) ctest --test-dir build/cpp --output-on-failure --timeout $(TIME_LIMIT_S)

# Debug: the core's asserts are on.
test-sanitized: build/sanitized/build.ninja
	$(WITH_VENV) cmake --build build/sanitized
	$(WITH_VENV) ctest --test-dir build/sanitized --output-on-failure --timeout $(TIME_LIMIT_S)
	@echo "ullage_fuzz $(FUZZ_RUNS) $(FUZZ_SEED)"
	@said=$$(timeout $(TIME_LIMIT_S) build/sanitized/ullage_fuzz $(FUZZ_RUNS) $(FUZZ_SEED)); code=$$?; echo "$$said"; \
	  case "$$said" in *$(FUZZ_RUNS)*) exit $$code;; *) echo "ullage_fuzz did not say that it ran $(FUZZ_RUNS) files" >&2; exit 1;; esac

# Any of these will do to open the report in.
BROWSER := $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name))) /usr/bin/chromium)

$(BROWSER):
	.ci/debian-package chromium "a browser to open the report in"

# The installed package is tested, not src/: that one has no compiled core. Its path is given for the doctests.
test-python: $(VENV)/installed $(VENV)/tools-test $(VENV)/torch-$(TORCH_VERSION) | $(BROWSER)
	$(BIN)/python -m pytest tests $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('platlib'))")/ullage

# --- checks ---

lint: $(VENV)/tools-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(CPP_SOURCES)

types: $(VENV)/tools-check $(VENV)/installed
	$(BIN)/mypy

architecture: $(VENV)/installed $(VENV)/tools-test
	$(BIN)/python -m pytest tests/architecture

format: $(VENV)/tools-check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CPP_SOURCES)

bench: $(VENV)/installed $(VENV)/torch-$(TORCH_VERSION) $(VENV)/tools-test
	$(BIN)/python -m benchmarks.run_explain $(BENCH_FLAGS)
	$(BIN)/python -m benchmarks.run_replay
	$(BIN)/python -m benchmarks.run_report

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
