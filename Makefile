# The first installed Python of version 3.11 or later.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
LOCKS = deploy/locks
# What is installed is what the locks name, byte for byte; the tree itself is built by the setuptools of the lock.
LOCKED = $(PIP) install --require-hashes --requirement
THIS_TREE = --no-deps --no-build-isolation
LOCK = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)
IMAGE_PYTHON ?= 3.11
# Wheels for these versions of glibc run on the image's Debian 12.
IMAGE_GLIBC := _2_34 _2_31 _2_28 _2_27 _2_26 _2_24 2014
# Processes that tests run in; 0 is one process, with a debugger and the output as it comes.
WORKERS ?= 2
RUNNABLE := .venv/.runnable
INSTALLED := .venv/.installed

.PHONY: help install demo test slow bench lint check simulate seeded fuzz mutate faults soak docs wheels image lock clean

help:  ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(INSTALLED)  ## Make .venv with everything in it

$(RUNNABLE): pyproject.toml $(LOCKS)/build.txt $(LOCKS)/runtime.txt
	@test -n "$(PYTHON)" || { echo "dpuplane needs Python 3.11 or later on the PATH" >&2; exit 1; }
	@echo "setting up .venv with what the plane needs (300 MB, half a minute the first time)" >&2
	@$(PYTHON) -m venv .venv
	@$(LOCKED) $(LOCKS)/build.txt --requirement $(LOCKS)/runtime.txt >&2
	@$(PIP) install $(THIS_TREE) --editable . >&2
	@touch $@

$(INSTALLED): $(RUNNABLE) $(LOCKS)/dev.txt
	@echo "adding what tests and tools need to .venv (1 GB, some minutes the first time)" >&2
	@$(LOCKED) $(LOCKS)/dev.txt >&2
	@touch $@

demo: $(RUNNABLE)  ## The whole plane in one process, with a fleet that joins it; ARGS="--nodes 10000 ..."
	@$(BIN)/dpuplane demo $(ARGS)

test: $(INSTALLED)  ## Every test, with real Kafka brokers and a real Kubernetes API server; WORKERS=0 for a debugger
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

slow: $(INSTALLED)  ## The tests that take minutes each: pods by the hundred, stalls, random faults
	$(BIN)/pytest -m slow $(ARGS)

lint: $(INSTALLED)  ## Style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## What CI runs

bench: $(INSTALLED)  ## The figures; ARGS="--only NAME", ARGS=--json
	@$(BIN)/python -m tests.bench $(ARGS)

simulate: $(INSTALLED)  ## The plane on a virtual clock, under faults; SEEDS=N
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),20) $(ARGS)

fuzz: $(INSTALLED)  ## Fuzz every decoder; SECONDS=N of each, ARGS="--only NAME"
	@$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),30) $(ARGS)

mutate: $(INSTALLED)  ## Changes that no test notices; SAMPLE=N mutants drawn, or ARGS="PATH ..." for modules
	@$(BIN)/python -m tests.mutation $(if $(SAMPLE),--sample $(SAMPLE)) $(ARGS)

faults: $(INSTALLED)  ## Hurt a plane of real processes; ARGS="--engine kafka --pairs 10", ARGS=--list
	@$(BIN)/python -m tests.faults $(ARGS)

soak: $(INSTALLED)  ## Simulate, hurt and fuzz for HOURS=N; what fails is kept in soak/
	@$(BIN)/python -m tests.faults.soak --hours $(or $(HOURS),1) $(ARGS)

seeded: $(INSTALLED)  ## Bugs planted in the plane, and the checkers that catch them; ARGS="--only NAME", ARGS=--json
	@$(BIN)/python -m tests.seeded $(ARGS)

wheels: $(RUNNABLE)  ## The plane and all it needs as wheels in dist/wheels, for this Python
	@rm -rf build dist/wheels
	@$(PIP) wheel --require-hashes --requirement $(LOCKS)/runtime.txt --wheel-dir dist/wheels
	@$(PIP) wheel $(THIS_TREE) --wheel-dir dist/wheels .

# The Python of the image may differ from that of this machine, so only the tree is built here.
image: $(RUNNABLE)  ## The image dpuplane, with docker; BASE=IMAGE of a Debian with Python IMAGE_PYTHON
	@rm -rf build dist/wheels
	@$(PIP) download --require-hashes --requirement $(LOCKS)/runtime.txt --dest dist/wheels \
		--only-binary :all: --python-version $(IMAGE_PYTHON) $(foreach glibc,$(IMAGE_GLIBC),--platform manylinux$(glibc)_$(shell uname -m))
	@$(PIP) wheel $(THIS_TREE) --wheel-dir dist/wheels .
	docker build --file deploy/docker/Dockerfile $(if $(BASE),--build-arg BASE=$(BASE)) --tag dpuplane .

lock:  ## The locks in deploy/locks from pyproject.toml, with uv; UPGRADE=1 for the newest versions
	$(LOCK) pyproject.toml --extra dev --extra bench --output-file $(LOCKS)/dev.txt
	$(LOCK) pyproject.toml --constraint $(LOCKS)/dev.txt --output-file $(LOCKS)/runtime.txt
	echo 'setuptools>=77' | $(LOCK) - --constraint $(LOCKS)/dev.txt --output-file $(LOCKS)/build.txt

docs: $(INSTALLED)  ## The reference tables in deploy/reference and the manifests in deploy/kubernetes, from the code
	@$(BIN)/python -m deploy.reference
	@$(BIN)/python -m deploy.kubernetes

clean:  ## Remove what was built
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
