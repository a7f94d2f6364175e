# `make help` explains every target.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-long test-servers bench soak lint format docs proto lock wheel image clean

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.frazil-ready
UV     := uv==0.13.7
ENGINE ?= docker
EXTRAS ?= mongodb
IMAGE  ?= frazil
SHARED := -n 2 --dist loadfile --no-loadscope-reorder

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(STAMP) ## install everything (done by the other targets when needed)

$(STAMP): requirements.lock pyproject.toml
	@echo "setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@$(BIN)/python -m frazil.iceberg.jvm.jars
	@touch $@

demo: $(STAMP) ## a shop's changefeed becomes Iceberg tables, verified, in about a minute
	@$(BIN)/frazil demo

test: $(STAMP) lint ## every test, with real Spark and real servers, in two processes
	$(BIN)/pytest $(SHARED)

test-fast: $(STAMP) ## the inner loop: no Spark, no servers, under a minute
	$(BIN)/pytest $(SHARED) -m "not spark and not servers and not more_servers and not slow and not long"

test-long: $(STAMP) ## campaigns of which `make test` runs a short form: kills at every moment, many seeds, long soaks
	$(BIN)/pytest $(SHARED) -m long

test-servers: $(STAMP) ## what is large or slow to start: HDFS, Hive, Nessie, ...; older PySpark and Iceberg; the demo from the wheel
	$(BIN)/pytest -m more_servers

bench: $(STAMP) ## measure, beside what a user would use instead; writes bench/results.json and docs/benchmarks.md
	$(BIN)/python -m bench

soak: $(STAMP) ## 500 upsert epochs in each delete mode, maintained and read throughout (EPOCHS, ROWS, CHANGES change it)
	$(BIN)/python -m bench.soak

lint: $(STAMP) ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## regenerate docs/reference from the code
	$(BIN)/python -m frazil.cli.reference docs/reference

proto: $(STAMP) ## regenerate the wire messages from messages.proto
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/frazil/model/messages.proto

lock: ## pin the dependencies again
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	    --python-version 3.11 pyproject.toml --group pyproject.toml:dev -o requirements.lock

wheel: $(STAMP) ## build dist/: the source distribution, and the wheel from it; the version is the newest tag
	@rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist
	@ls dist/*

image: wheel ## build an image from the wheel (ENGINE, IMAGE and EXTRAS change how)
	$(ENGINE) build --tag $(IMAGE) --build-arg EXTRAS=$(EXTRAS) .

clean: ## remove what the other targets made
	rm -rf $(VENV) dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
