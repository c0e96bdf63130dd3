# Everything needs Python 3.11 to 3.13 with its venv module. Packages are installed into .venv.
# ARGS is passed on: make run ARGS=migrate, make test ARGS="-k embedded", make chaos ARGS="--seeds 1".

PYTHON ?= python3
ARGS ?=
EXAMPLES ?= 200
VENV := .venv
BIN := $(VENV)/bin
RUNNING := $(BIN)/python
# Every worker compiles all tests, which takes seven seconds, unless an earlier run has stored them.
PYTEST := env PYTHONDONTWRITEBYTECODE= $(RUNNING) -m pytest

# A stamp says that an installation succeeded. It is void when the Python that made the environment is gone.
RUN_STAMP := $(VENV)/installed
DEV_STAMP := $(VENV)/installed-dev
$(shell $(RUNNING) -c '' 2>/dev/null || rm -f $(RUN_STAMP) $(DEV_STAMP))

.PHONY: help run test test-all lint format types growth docs schema lock mutants fuzz chaos generators clean

help: ## Show the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_STAMP) ## Start the service; without configuration, with its own PostgreSQL and the sandbox.
	@exec $(RUNNING) run.py $(ARGS)

test: $(DEV_STAMP) ## Run the core tests; with ARGS, those that they select, without the long ones.
	@exec $(PYTEST) $(if $(ARGS),-m "not long" $(ARGS),-n auto -m core)

test-all: $(DEV_STAMP) ## Run all tests, and a chaos run of one seed.
	@$(PYTEST) $(ARGS)
	@$(MAKE) --no-print-directory chaos SEEDS=1 ARGS=

lint: $(DEV_STAMP) ## Check the format, the style and the prose.
	@$(BIN)/ruff format --check --quiet . || { echo "Run make format." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(RUNNING) .ci/format_sql.py --check
	@$(RUNNING) .ci/check_prose.py

format: $(DEV_STAMP) ## Format the code and repair what the linter can repair.
	@$(BIN)/ruff check --fix --quiet --exit-zero .
	@$(BIN)/ruff format --quiet .
	@$(RUNNING) .ci/format_sql.py

types: $(DEV_STAMP) ## Check the types.
	@$(BIN)/pyright

growth: $(DEV_STAMP) ## Measure how processor time grows with the input: ARGS="--list", "--only TEXT".
	@exec $(RUNNING) -m tests.growth $(ARGS)

docs: $(RUN_STAMP) ## Generate the pages of docs/ that the code describes.
	@exec env PYTHONPATH=. $(RUNNING) .ci/write_docs.py

schema: $(DEV_STAMP) ## Generate sql/schema.sql, the tables as all migrations leave them.
	@exec $(RUNNING) -m tests.schema_file

lock: $(DEV_STAMP) ## Write requirements.lock: the newest versions that requirements.txt allows, with hashes.
	@exec $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
	    --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock requirements.txt

mutants: $(DEV_STAMP) ## Plant known defects, each of which a test must notice: ARGS="--list", "--only NAME", "--jobs N".
	@exec $(RUNNING) -m tests.mutants $(ARGS)

fuzz: $(DEV_STAMP) ## Send EXAMPLES generated requests to each operation, and malformed ones.
	@exec env FUZZ_EXAMPLES=$(EXAMPLES) $(RUNNING) -m pytest tests/api/test_schemathesis.py tests/api/test_malformed.py $(ARGS)

chaos: $(DEV_STAMP) ## Kill, pause and disconnect the service under load; SEED, SEEDS, DOCUMENTS, KILLS, PAUSES bound it.
	@exec $(RUNNING) -m tests.chaos $(ARGS)

generators: $(DEV_STAMP) ## Run client generators and linters on the OpenAPI description; downloads them. ARGS="--only NAME".
	@exec $(RUNNING) -m tests.generators $(ARGS)

$(RUN_STAMP): requirements.txt requirements-embedded.txt
	@command -v "$(PYTHON)" >/dev/null || \
	    { echo "$(PYTHON) was not found: install Python 3.11 or newer, or run make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is $$("$(PYTHON)" -V 2>&1): Python 3.11 or newer is needed; run make PYTHON=python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) has no venv module: install it (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@test -f $@ || "$(PYTHON)" -m venv --clear $(VENV)
	@rm -f $@ $(DEV_STAMP)
	@echo "Installing requirements-embedded.txt into $(VENV):"
	@$(RUNNING) -m pip install --disable-pip-version-check --no-warn-script-location -r requirements-embedded.txt
	@touch $@

$(DEV_STAMP): requirements-dev.txt $(RUN_STAMP)
	@echo "Installing requirements-dev.txt into $(VENV):"
	@$(RUNNING) -m pip install --disable-pip-version-check --no-warn-script-location -r requirements-dev.txt
	@touch $@

clean: ## Remove the environment and caches, not the data.
	rm -rf $(VENV) .pytest_cache .hypothesis .ruff_cache
	find . -name .data -prune -o -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
