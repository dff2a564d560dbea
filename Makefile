# Needs Python 3.11 or newer, make and a package index. The first target that runs makes .venv and installs the pins.

PYTHON ?= python3
N ?= 2000
SEED ?= 0
EVERY ?= 1
MINUTES ?= 20
RUNS ?= 5000
MODULE ?=
STORE ?=
UPGRADE ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
# The package and what it needs, without extras, tests and tools: all that the demo asks for.
BARE_STAMP := $(VENV)/bare
# The generator of the site shares no library with the product.
DOCS_VENV := .venv-docs
DOCS_BIN := $(DOCS_VENV)/bin
DOCS_STAMP := $(DOCS_VENV)/installed
UV := $(shell command -v uv 2>/dev/null)
# Compiles the pins where no uv is on the PATH.
UV_FOR_PINS := uv==0.13.7

# What a shell may carry around must not reach our own environment.
unexport CONDA_PREFIX PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH VIRTUAL_ENV

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo nl2sql-demo quick test test-times nightly steady browser slurm objects pictures check lint format bench growth simulate crashes chaos soak mutants fuzz attacks generated docs pins dist dist-check clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(BARE_STAMP) ## watch a workflow break at every rung of the ladder and still end well
	@$(BIN)/mulligan demo

nl2sql-demo: $(STAMP) ## ask two small databases: answered, checked, refused, combined, split, and a part missing
	@$(BIN)/python -m mulligan_nl2sql.demo.questions

quick: $(STAMP) ## run the tests of the core and the language (under a minute on two cores)
	$(BIN)/pytest tests/core tests/golden tests/language -n 2 -q

test: $(STAMP) ## run the tests; one that fails is repeated, alone on a busy machine
	$(BIN)/pytest --repeat-failed

test-times: $(STAMP) ## run the tests, and print what they cost: by kinds, by folders
	$(BIN)/pytest --times

nightly: $(STAMP) ## run all tests, also those that take long, each with all of its examples (half an hour)
	MULLIGAN_NIGHTLY=1 $(BIN)/pytest --repeat-failed

steady: $(STAMP) ## run the tests three times in twelve processes, a load of 12 (half an hour): what fails then is unsteady
	$(BIN)/python -m tests.support.unsteady

browser: $(STAMP) ## open every page of the dashboard in Chromium (Debian: apt-get install chromium)
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "Chromium is missing; on Debian: apt-get install chromium" >&2; exit 1; }
	MULLIGAN_BROWSER=1 $(BIN)/pytest tests/browser

# They wait for the clocks of Slurm, not for processors: each of the processes has a Slurm of its own.
slurm: $(STAMP) ## run workers as jobs of a private Slurm, as root (Debian: apt-get install slurm-wlm munge)
	@$(BIN)/python -S tests/support/private_slurm.py
	MULLIGAN_SLURM=1 $(BIN)/pytest tests/slurm -n 4

# moto is an S3 server; it asks for 30 packages, so it has an environment of its own.
objects: $(STAMP) ## test artifacts against a real S3 server, which is installed to .venv-s3
	test -x .venv-s3/bin/moto_server || { $(PYTHON) -m venv .venv-s3 && .venv-s3/bin/pip install -q "moto[server]>=5.1"; }
	MULLIGAN_NIGHTLY=1 MULLIGAN_TEST_S3=$(CURDIR)/.venv-s3/bin/python $(BIN)/pytest tests/object_store -n 2

pictures: $(STAMP) ## take pictures of every page of the dashboard, to build/pictures; those of the documentation anew
	$(BIN)/python -m tests.browser.pictures --docs

check: lint test ## format, lint, types, tests: what a change must pass

lint: $(STAMP) ## format, lint and types, without the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP) ## put the code into the house's form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## measure the core, the language, and durable runs beside their peers (half an hour; installs the peers)
	$(BIN)/python bench/core.py
	$(BIN)/python bench/language.py
	$(BIN)/python bench/flows.py
	$(BIN)/python bench/programs.py
	$(BIN)/python bench/face.py
	$(BIN)/python bench/durable.py --install

growth: $(STAMP) ## measure how cost grows, and write docs/project/plots and the section of docs/project/benchmarks.md (20 minutes)
	@mkdir -p bench/results
	$(BIN)/python bench/growth.py --json bench/results/growth.json --write docs/project

simulate: $(STAMP) ## run N random histories from SEED: make simulate N=20000 SEED=7
	$(BIN)/python -m proof.simulator --histories $(N) --seed $(SEED)

crashes: $(STAMP) ## trouble for real processes at each EVERY-th moment, for all of it or MINUTES: make crashes EVERY=9
	$(BIN)/python -m proof.crashes --every $(EVERY) --seed $(SEED) $(if $(filter file,$(origin MINUTES)),,--minutes $(MINUTES))

chaos: $(STAMP) ## RUNS runs on PostgreSQL, MINUTES of killed workers, restarted servers, cut connections
	$(BIN)/python -m proof.chaos --minutes $(MINUTES) --runs $(RUNS) --seed $(SEED)

soak: $(STAMP) ## RUNS small runs in MINUTES, 100 watchers: nothing may grow: make soak MINUTES=60 RUNS=50000
	$(BIN)/python -m proof.soak --seed $(SEED) $(if $(filter file,$(origin MINUTES)),,--minutes $(MINUTES)) $(if $(filter file,$(origin RUNS)),,--runs $(RUNS))

fuzz: $(STAMP) ## MINUTES of inputs that nobody would write, to all that reads: make fuzz MINUTES=10 SEED=7
	$(BIN)/python -m proof.fuzz --minutes $(MINUTES) --seed $(SEED)

attacks: $(STAMP) ## attack a server for MINUTES: every call, every token, another project's ids: make attacks MINUTES=60 SEED=1
	$(BIN)/python -m proof.attacks --minutes $(MINUTES) --seed $(SEED) $(addprefix --store ,$(STORE))

mutants: $(STAMP) ## change the core in thousands of places and see which changes no test notices: make mutants PART=notices, MODULE=ladder
	nice -n 19 $(BIN)/python -m proof.mutation $(addprefix --part ,$(PART)) $(MODULE)

generated: $(STAMP) ## write what is made from the code: the references in docs/, the JSON Schema, the table of completion
	$(BIN)/python -m mulligan.language.reference
	$(BIN)/python -m mulligan.language.schema
	$(BIN)/python -m mulligan.cli.words.completion_table
	$(BIN)/python -m mulligan.api.reference
	$(BIN)/python -m mulligan.mcp_server.reference

docs: $(DOCS_STAMP) ## build the documentation as a site, to build/site/html: checked, searchable, for any web server or a folder
	$(DOCS_BIN)/python -m tools.site.stage build/site
	$(DOCS_BIN)/zensical build --strict --clean --config-file build/site/zensical.toml
	$(DOCS_BIN)/python -m tools.site.check build/site

pins: ## compile requirements/ from pyproject.toml; UPGRADE=1 moves every pin to its newest version
	@$(require-python)
	$(if $(UV),,test -x .venv-pins/bin/uv || { $(PYTHON) -m venv .venv-pins && .venv-pins/bin/pip install -q $(UV_FOR_PINS); })
	$(compile) $(ALL_EXTRAS) -o requirements/runtime.txt
	$(compile) $(ALL_EXTRAS) --group dev -c requirements/runtime.txt -o requirements/dev.txt
	$(compile) --group build -c requirements/dev.txt -o requirements/bare.txt
	$(compile) --extra postgres --extra server --group build -c requirements/dev.txt -o requirements/image.txt
	$(compile-groups) --group docs -c requirements/dev.txt -o requirements/docs.txt

# Two builds of one commit give the same bytes: every file has the time of the commit.
COMMIT_TIME = $(shell git log -1 --format=%ct 2>/dev/null)

dist: $(STAMP) ## build an sdist of each package, and a wheel from it, to dist/
	rm -rf dist
	for project in . packages/nl2sql; do \
		$(if $(COMMIT_TIME),SOURCE_DATE_EPOCH=$(COMMIT_TIME)) $(BIN)/uv build --quiet --no-config --offline --no-build-isolation \
			--no-create-gitignore --python $(BIN)/python --out-dir dist $$project || exit; \
	done

dist-check: dist ## install them with each extra alone, for each Python that is found, and type what people type first (minutes)
	$(BIN)/python -m tools.packaging.check_installed dist

clean: ## remove .venv and what the tools left behind (runs in .mulligan stay)
	rm -rf .venv .venv-docs .venv-pins .venv-s3 .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutants build dist
	rm -rf bench/.envs proof/fuzz/.env proof/fuzz/found proof/attacks/found
	find src tests packages bench proof examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The project and its packages come last and without a build environment of their own: their backend is one of the pins.
$(STAMP): pyproject.toml packages/nl2sql/pyproject.toml requirements/dev.txt
	@$(require-python)
	$(call install,requirements/dev.txt,-e . -e packages/nl2sql)
	@touch $(BARE_STAMP) $@

$(BARE_STAMP): pyproject.toml requirements/bare.txt
	@$(require-python)
	$(call install,requirements/bare.txt,-e .)
	@touch $@

$(DOCS_STAMP): requirements/docs.txt
	@$(require-python)
	@echo "installing what requirements/docs.txt pins into $(DOCS_VENV), once" >&2
ifdef UV
	@$(UV) venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(DOCS_VENV)
	@$(UV) pip install --quiet --python $(DOCS_BIN)/python --require-hashes -r requirements/docs.txt
else
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
endif
	@touch $@

# The pins of a file and then ours, editable, into .venv.
define install
@echo "installing what $(1) pins into $(VENV), once" >&2
@$(if $(UV),$(UV) venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV),$(PYTHON) -m venv $(VENV))
@$(PIP) --require-hashes -r $(1)
@$(PIP) --no-deps --no-build-isolation $(2)
endef
PIP = $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check)

define require-python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "mulligan needs Python 3.11 or newer, and '$(PYTHON)' is not: name another with make PYTHON=python3.12" >&2; exit 1; }
endef

ALL_EXTRAS := $(addprefix --extra ,postgres private-postgres duckdb noetl png server mcp dask notify objects otel)

# Hashes of every file of a release, for every platform; no address of an index, no path of this machine.
compile = $(compile-groups) pyproject.toml

define compile-groups
$(or $(UV),.venv-pins/bin/uv) --quiet --no-config pip compile --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make pins" $(if $(UPGRADE),--upgrade)
endef
