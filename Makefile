# What a developer can do here. `make help` lists it; everything happens in a local .venv.

SHELL  := /bin/sh
# The newest Python there is; `make PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; exit; }; done; echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes
# How many processes share the tests, half of whose time is waiting; TESTS=path runs in one.
WORKERS ?= 3
# The same for tests that start Spark, which work more than they wait.
WORKERS_WITH_SPARK ?= 2
SHARED  := $(if $(TESTS),$(TESTS),-n $(WORKERS))
# The packages with their hot path compiled, as a wheel has them.
PACKAGES  := $(CURDIR)/$(VENV)/compiled

.DEFAULT_GOAL := help
.PHONY: help setup run compiled test test-busy test-compiled check format bench bench-kafka bench-compare bench-landing profile parity parity-record interop kafka-tests crash simulate fuzz pipeline-setup test-pipeline boards-picture lock docs dist clean

help:  ## List what can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | \
	  while IFS='|' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Ottla needs Python 3.11 or newer, and '$(PYTHON)' is not: install one, or name it with 'make PYTHON=...'." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module: install it (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.test: requirements/test.txt | $(BIN)/python
	@echo "Installing what the tests need into $(VENV) ..."
	@$(PIP) -r requirements/test.txt && touch $@

$(VENV)/.dev: requirements/dev.txt | $(BIN)/python
	@echo "Installing what the checks need into $(VENV) ..."
	@$(PIP) -r requirements/dev.txt && touch $@ $(VENV)/.test

$(VENV)/.compile: requirements/compile.txt | $(BIN)/python
	@echo "Installing what compiles the broker's hot path into $(VENV), and compiling it, a minute once ..."
	@$(PIP) -r requirements/compile.txt && touch $@

$(VENV)/.fuzz: requirements/fuzz.txt $(VENV)/.test
	@$(BIN)/python -c 'import platform, sys; sys.exit((sys.platform, platform.machine()) != ("linux", "x86_64") or sys.version_info >= (3, 14))' || { \
	  echo "Fuzzing needs atheris, whose wheels are for Linux on x86-64 and Python 3.11 to 3.13. Without it 'make test' replays its findings." >&2; exit 1; }
	@echo "Installing the fuzzer into $(VENV) ..."
	@$(PIP) -r requirements/fuzz.txt && touch $@

$(VENV)/.picture: requirements/picture.txt $(VENV)/.test
	@echo "Installing what draws into $(VENV) ..."
	@$(PIP) -r requirements/picture.txt && touch $@

$(VENV)/.profile: requirements/profile.txt $(VENV)/.test
	@echo "Installing the profiler into $(VENV) ..."
	@$(PIP) -r requirements/profile.txt && touch $@

$(VENV)/.pipeline: requirements/pipeline.txt $(VENV)/.test
	@echo "Installing Spark and what else the pipeline needs into $(VENV) (600 MB) ..."
	@$(PIP) -r requirements/pipeline.txt && touch $@

setup: $(VENV)/.dev  ## Make .venv with everything a developer needs

run: compiled  ## Start the broker; data in ./data (CONFIG=file, ARGS="-o key=value ...")
	@PYTHONPATH=$(PACKAGES) exec $(BIN)/python -P -m broker $(if $(CONFIG),--config $(CONFIG)) $(ARGS)

compiled: $(VENV)/.compile  ## Compile the broker's hot path, if there is a C compiler (`run`, `bench` and the wheel do it by themselves)
	@$(BIN)/python -m compiled $(PACKAGES)

test: $(VENV)/.test  ## Set up and run the tests (TESTS=path to run some of them)
	@$(BIN)/python -m pytest $(SHARED)

test-busy: $(VENV)/.test  ## The same beside processes that keep every processor busy (BUSY=4, TIMES=3)
	@for time in $$(seq $(or $(TIMES),1)); do \
	  $(BIN)/python -m dev.busy $(or $(BUSY),4) $(BIN)/python -m pytest $(SHARED) || exit 1; done

test-compiled: $(VENV)/.test $(VENV)/.compile  ## The same tests on the broker as users have it (needs a C compiler)
	@$(BIN)/python -m compiled $(PACKAGES) --required
	@OTTLA_TEST_PACKAGES=$(PACKAGES) PYTHONPATH=$(CURDIR) $(BIN)/python -P -m pytest -o pythonpath="$(PACKAGES) ." $(SHARED)

check: $(VENV)/.dev  ## Formatting, lint, types, the rules of who may import whom, the Dockerfile
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format'." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports --no-cache
	@if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint docker/Dockerfile; \
	  else echo "docker/Dockerfile was not checked: there is no hadolint for this machine."; fi

format: $(VENV)/.dev  ## Put the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .

bench: $(VENV)/.test compiled  ## Measure the broker against this machine's own limits (ARGS="--only produce --bootstrap host:port")
	@$(BIN)/python -m bench $(ARGS)

bench-kafka: $(VENV)/.picture compiled  ## Apache Kafka and us under the same loads, for 81 minutes, then the cases of features; writes docs/performance.md (ARGS="--only fetch"; needs Java and Maven)
	@$(BIN)/python -m bench.side_by_side $(ARGS)

bench-compare: $(VENV)/.test compiled  ## The same loads on this checkout and on another commit (BASE=commit, ARGS="--only raw")
	@test -n "$(BASE)" || { echo "Name the commit to compare with: make bench-compare BASE=..." >&2; exit 2; }
	@$(BIN)/python -m bench.side_by_side --base $(BASE) $(ARGS)

bench-landing: $(VENV)/.test compiled  ## Start, memory and hot path beside the last release: a line for bench/landings.tsv (ten minutes)
	@$(BIN)/python -m bench.side_by_side --landing --rounds 3 $(ARGS)

profile: $(VENV)/.profile  ## Look into the broker under a load of bench-kafka (CASE=raw-16kb), draw a flame graph
	@test -n "$(CASE)" || { echo "Name the workload: make profile CASE=... ('python -m bench.side_by_side --list' has them)" >&2; exit 2; }
	@$(BIN)/python -m bench.side_by_side --profile $(CASE) $(ARGS)

parity: $(VENV)/.test compiled  ## Ask Apache Kafka and us the same, compare the answers field by field (needs Java and Maven)
	@libraries=$$($(BIN)/python -m dev.kafka_jars) || exit 0; \
	  OTTLA_TEST_PACKAGES=$(PACKAGES) OTTLA_TEST_KAFKA_LIBS="$$libraries" $(BIN)/python -m pytest $(or $(TESTS),tests/parity) $(ARGS)

parity-record: $(VENV)/.test  ## Write down what Apache Kafka answers, for `make test` (SCRIPTS="produce fetch": some)
	@$(BIN)/python -m tests.parity.record $(SCRIPTS)

interop: $(VENV)/.test compiled  ## Let programs that are not ours use the broker: kcat, kafkajs, Kafka's tools (ARGS="-k kcat")
	@OTTLA_TEST_PACKAGES=$(PACKAGES) $(BIN)/python -m pytest tests/interop -n $(WORKERS) $(ARGS)

kafka-tests: $(VENV)/.test compiled  ## Run Apache Kafka's own integration tests on us, for hours; goes on where it was (ARGS="--only TransactionsTest"; needs a JDK and Maven)
	@OTTLA_TEST_PACKAGES=$(PACKAGES) $(BIN)/python -m tests.kafka_own $(ARGS)

crash: $(VENV)/.test compiled  ## Kill the broker again and again while clients use it, workers with transactions, the cleaner, and the archive; nothing may be lost (KILLS=200, SEED=number, ARGS="--storm 30")
	@SPARK_SUBMIT_OPTS="$$($(BIN)/python -m dev.spark_start)" OTTLA_TEST_PACKAGES=$(PACKAGES) $(BIN)/python -u -m tests.crash --kills $(or $(KILLS),200) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate: $(VENV)/.test compiled  ## Simulate brokers, disks, network and time: kills, power cuts, partitions; a seed repeats its run (SEEDS=100000, ARGS="--scenario replicated --seed 4711 --trace")
	@OTTLA_TEST_PACKAGES=$(PACKAGES) $(BIN)/python -u -m tests.simulation --seeds $(or $(SEEDS),1000) $(ARGS)

fuzz: $(VENV)/.fuzz  ## Fuzz frames, SASL, TLS, decoders, batches and appends (RUNS=2000000 each, ARGS="--only frames")
	@$(BIN)/python -u -m tests.fuzz --runs $(or $(RUNS),2000000) $(ARGS)

boards-picture: $(VENV)/.picture  ## Ten minutes of clients and Prometheus: has every panel data? Draws docs/pictures (ARGS="--minutes 3")
	@$(BIN)/python -m bench.picture $(ARGS)

pipeline-setup: $(VENV)/.pipeline  ## Bring what the pipeline needs: Spark, Java where it may, the jars of Spark's Kafka connector and of Delta Lake
	@$(BIN)/python -m dev.pipeline_setup

test-pipeline: $(VENV)/.pipeline  ## Set up and test the pipeline on a real Spark (needs Java; TESTS=path to run some of them)
	@$(BIN)/python -m dev.pipeline_setup || { echo "Skipped: the pipeline's tests need what is not here." >&2; exit 0; }; \
	  SPARK_SUBMIT_OPTS="$$($(BIN)/python -m dev.spark_start)" $(BIN)/python -m pytest $(or $(TESTS),tests/pipeline -n $(WORKERS_WITH_SPARK)) $(ARGS)

docs: $(VENV)/.test  ## Write the generated files again (configuration, metrics, protocol support, Grafana's boards, the README's rows)
	@$(BIN)/python -m config.documentation
	@$(BIN)/python -m broker.metrics.documentation
	@$(BIN)/python -m dev.protocol_support
	@$(BIN)/python -m boards
	@$(BIN)/python -m bench.side_by_side --readme

lock: $(VENV)/.dev  ## Choose the newest versions of all dependencies and lock them in requirements/
	@$(BIN)/python -m pip install --quiet uv
	@for name in runtime test fuzz picture profile compile pipeline dev; do \
	  case $$name in runtime) groups= ;; dev) groups="--group test --group check" ;; \
	    pipeline) groups="--extra spark --extra delta --group test --group pipeline" ;; *) groups="--group $$name" ;; esac; \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade --no-header \
	    pyproject.toml $$groups --output-file requirements/$$name.txt; done

dist: $(VENV)/.dev  ## Build the wheel, install it by pip, uv and pipx, and use it (needs the package index)
	@$(BIN)/python tests/wheel/try_wheel.py

clean:  ## Remove everything that was made, but not the data
	@rm -rf $(VENV) .interop .kafka .spark dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/fuzz/corpus
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
