# `make run` and `make test` need Python 3.11 or newer with its venv module, and fetch the rest into .venv.
# ARGS is passed on: make run ARGS=migrate, make test ARGS="-k embedded", make chaos ARGS="--seeds 1".

PYTHON ?= python3
ARGS ?=
EXAMPLES ?= 200
VENV := .venv
RUNNING := $(VENV)/bin/python

# The stamp says that the whole installation succeeded; it is void when the Python it was made with has gone.
STAMP := $(VENV)/installed
$(shell $(RUNNING) -c '' 2>/dev/null || rm -f $(STAMP))

.PHONY: run demo test mutants fuzz chaos clean

run: $(STAMP)
	@exec $(RUNNING) run.py $(ARGS)

demo: $(STAMP)
	@exec $(RUNNING) run.py demo $(ARGS)

test: $(STAMP)
	@exec $(RUNNING) -m pytest $(ARGS)

# Deliberate defects of the code, each of which a test must notice. ARGS="--list", "--only NAME", "--jobs N".
mutants: $(STAMP)
	@exec env PYTHONPATH=.:tests $(RUNNING) -m mutants $(ARGS)

# What the API's description allows, as make test asks it of the service, but for minutes: EXAMPLES of each operation.
fuzz: $(STAMP)
	@exec env FUZZ_EXAMPLES=$(EXAMPLES) $(RUNNING) -m pytest tests/test_schemathesis.py $(ARGS)

# The service is killed, paused and cut off from everything, under load; SEED, SEEDS, DOCUMENTS, KILLS, PAUSES, … bound it.
chaos: $(STAMP)
	@exec env PYTHONPATH=.:tests $(RUNNING) -m chaos $(ARGS)

$(STAMP): requirements.txt
	@command -v "$(PYTHON)" >/dev/null || \
	    { echo "$(PYTHON) was not found: install Python 3.11 or newer, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is $$("$(PYTHON)" -V 2>&1): Python 3.11 or newer is needed; say make PYTHON=python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) has no venv module: install it (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Installing requirements.txt into $(VENV) ..."
	@test -f $@ || "$(PYTHON)" -m venv --clear $(VENV)
	@rm -f $@
	@$(RUNNING) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .hypothesis
	find . -name .data -prune -o -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
