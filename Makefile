# The developer's interface. `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q --no-header
# Which tests; `make test-all` runs all of them.
FAST := not slow

.DEFAULT_GOAL := help
.PHONY: help setup native test test-all e2e check demo bench release lock format clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready native ## a .venv with the locked packages, and the native parts

$(VENV)/.ready: requirements.lock pyproject.toml setup.py
	@./.ci/prerequisites $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked packages (about a minute)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

native: $(VENV)/.ready ## builds what changed of the C parts
	@$(BIN)/python nativebuild.py

test: native ## the fast suite
	@$(PYTEST) -n auto --dist loadgroup -m "($(FAST)) and not serial"; beside=$$?; \
	  $(PYTEST) -m "($(FAST)) and serial" && exit $$beside

test-all: ## the slow clients and the long runs, too
	@$(MAKE) --no-print-directory test FAST="slow or not slow"

e2e: native ## real clusters on this machine (as root; the first time compiles Kubernetes, half an hour)
	@$(BIN)/python -m tests.e2e

check: native ## style, types, layers, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 3
	@git ls-files '*.c' '*.h' | xargs $(BIN)/clang-format --dry-run --Werror
	@$(BIN)/python -m shim.coverage
	@$(BIN)/python -m deviceplugin.kubelet.proto --check
	@PATH="$$PATH:$$($(BIN)/python -m tests.e2e --path)" $(BIN)/python -m deploy.check

format: $(VENV)/.ready ## rewrites Python and C in the house style
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
	@git ls-files '*.c' '*.h' | xargs $(BIN)/clang-format -i

demo: native ## the whole system on simulated GPUs, every promise checked
	@$(BIN)/python -m aliquot.cli demo

bench: native ## the measurements of docs/benchmarks.md
	@$(BIN)/python -m bench.shim

release: $(VENV)/.ready ## a wheel whose libraries need only glibc 2.17
	@ALIQUOT_CC="$(CURDIR)/$(BIN)/python -m ziglang cc -target x86_64-linux-gnu.2.17" \
	  $(BIN)/python -m build --wheel --no-isolation -o dist

lock: $(VENV)/.ready ## resolves requirements.lock anew from pyproject.toml
	@$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/python -m pip install -q uv
	@$(VENV)/lock/bin/uv pip compile -q --universal --upgrade --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --group dev --group clients -o requirements.lock pyproject.toml

clean: ## removes everything that was built
	@rm -rf $(VENV) build dist *.egg-info .*_cache .hypothesis
	@git clean -fdXq -- aliquot shim simgpu deviceplugin scheduler_ext bench tests
