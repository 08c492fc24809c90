# Everything that is needed is made on the way: a shell, make, git and a Python from 3.10 to 3.14 with venv and pip are assumed.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null \
	&& echo $$python && break; done)

# A checkout keeps what it prepares to itself.
export LAKELABEL_CACHE := $(CURDIR)/.cache

# Several libraries write below HOME; where it is missing or closed they get a folder of this checkout.
ifneq ($(shell test -n "$$HOME" && test -w "$$HOME" && echo usable),usable)
export HOME := $(CURDIR)/.cache/home
endif

.PHONY: help setup demo test test-all check lock clean

help:
	@echo 'make demo      label about a hundred bundled documents with a small model; options: make demo ARGS=…'
	@echo 'make test      check, then the unit, Spark, engine, package and the quickest fault tests'
	@echo 'make test-all  the same, with the slow tests: about three hours on two cores, most of them the fault suite, which ends in a table'
	@echo 'make check     format, lint, types and the direction of imports'
	@echo 'make setup     prepare the environment, Java, the Delta jars and the model; the others do it by themselves'
	@echo 'make lock      resolve requirements.in anew; to move to newest versions: make lock ARGS=--upgrade'
	@echo 'make clean     remove everything that setup and the tools have made'

setup:
	@test -n "$(PYTHON)" || { echo 'setup: no Python from 3.10 to 3.14 with venv and pip is on the PATH; install one' \
		'(on Debian: python3 and python3-venv), or name it: make PYTHON=…' >&2; exit 1; }
	@mkdir -p "$$HOME"
	@"$(PYTHON)" -m tools.setup

demo: setup
	@.venv/bin/python demo $(ARGS)

test: check
	.venv/bin/python -m pytest $(ARGS)

test-all: check
	.venv/bin/python -m pytest -m '' tests $(ARGS)

check: setup
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/lint-imports

lock: setup
	.venv/bin/uv pip compile requirements.in --overrides requirements-overrides.txt --universal --python-version 3.10 \
		--no-emit-index-url --no-header --no-annotate --quiet --output-file requirements.lock $(ARGS)

clean:
	rm -rf .venv .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist spark-warehouse
