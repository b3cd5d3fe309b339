# `make` lists the targets. Each target first updates .venv, which takes no time if it is up to date.

PY := .venv/bin/python
# Additional arguments for the tool that a target runs, as in: make test ARGS="-k window -x"
ARGS ?=
# Four workers, because tests with brokers wait more than they compute. Files are distributed in their
# order: those with brokers come first, and the short ones after them keep all workers busy to the end.
SHARED := -n 4 --dist loadfile --no-loadscope-reorder
# The tests that `make coverage` and `make pure` run; ARGS="tests" for all tests.
COVERED := tests/unit tests/properties tests/conformance

# Tests start hundreds of processes. If the environment disabled bytecode files, each process would
# compile the package again, which takes half a second of CPU time.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-async test test-extended test-all slow fuzz fuzz-native sanitize coverage pure lowest lint types format bench soak chaos cluster simulate mutants site wheels release-check ci lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

venv: ## create or update .venv with the locked packages
	@sh .ci/setup

demo: venv ## count words on an embedded Kafka broker (takes a minute)
	@$(PY) examples/word-count/word_count.py --demo $(ARGS)

demo-async: venv ## call a web service for every record, one and a hundred at a time
	@$(PY) examples/async-enrichment/async_enrichment.py --demo $(ARGS)

test: venv .venv/spark-classes.jsa ## run the tests that take less than 10 minutes together
	$(PY) -m pytest -m "not slow and not extended" --ignore=tests/style --durations=10 $(SHARED) $(ARGS)

test-extended: venv .venv/spark-classes.jsa ## run the tests that are too long for `make test`
	$(PY) -m pytest -m "extended and not slow" --durations=10 $(SHARED) $(ARGS)

test-all: test test-extended ## run the tests of `make test` and `make test-extended`

.venv/spark-classes.jsa: requirements.lock tests/support/machine/spark_classes.py
	@PYTHONPATH=tests $(PY) -m support.machine.spark_classes $@

slow: venv ## run the tests that take too long for `make test`, except those of `make soak`
	$(PY) -m pytest -m slow tests/integration tests/unit tests/chaos/test_storm.py::test_a_rolling_restart_of_three_brokers_loses_nothing $(ARGS)

fuzz: venv ## compare random topologies with the real Kafka Streams, which is downloaded (requires a JDK)
	MILLSTREAM_EXAMPLES=2000 $(PY) -m pytest tests/properties/test_batch_engine.py tests/conformance/test_batches.py tests/conformance/test_caches.py
	MILLSTREAM_STEPS=10000 $(PY) -m pytest tests/properties/test_*state_model.py
	PYTHONPATH=tests $(PY) -m conformance.fuzz $(ARGS)

fuzz-native: venv ## compare the C extension with Python, with functions that misbehave; ARGS="--seed N --minutes M"
	PYTHONPATH=tests $(PY) -m extension $(ARGS)

sanitize: venv ## run the C extension under sanitizers and in a debug build of Python, and measure leaks; ARGS="--only PART"
	$(PY) -m pytest -m slow tests/extension
	PYTHONPATH=tests $(PY) -m extension.sanitize $(ARGS)

pure: venv ## run the tests that need no broker, without the C extension; ARGS="tests" for all
	PYTHONPATH=tests $(PY) -m support.without_speedups -m "not slow" $(or $(ARGS),$(COVERED))

lowest: venv ## test with the oldest supported kafka-python and Spark, which are downloaded
	$(PY) -m pytest -m slow tests/integration/kafka/test_kafka_python_versions.py tests/integration/spark/test_oldest_spark.py $(ARGS)

coverage: venv ## measure the coverage of the tests that need no broker, and list files below 80 %
	rm -f .coverage .coverage.*
	.venv/bin/coverage run -m pytest -m "not slow" $(SHARED) $(or $(ARGS),$(COVERED))
	.venv/bin/coverage combine --quiet
	@.venv/bin/coverage report | awk 'NR < 3 || $$NF + 0 < 80 || $$1 == "TOTAL"'

lint: venv ## check style and workflows
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	$(PY) -m pytest tests/style
	.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv/bin/check-jsonschema --builtin-schema vendor.github-actions .github/actions/*/action.yml
	.venv/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml

types: venv ## check types
	.venv/bin/mypy --strict $(ARGS)
	.venv/bin/basedpyright

format: venv ## format the code
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: venv ## compare the speed with Kafka Streams and Decaton; ARGS="--only PART" for a part (requires a JDK)
	$(PY) benchmarks/bench.py $(ARGS)

soak: venv ## run under load for a long time, while instances start and stop
	$(PY) -m pytest -m slow tests/chaos tests/integration/runtime/test_standby.py $(ARGS)

chaos: venv ## kill, pause and disconnect processes, and check that no records are lost; ARGS="--seed N --minutes M"
	PYTHONPATH=tests $(PY) -m chaos $(ARGS)

cluster: venv ## kill hosts of a Spark cluster, cut its links, and fill its disks (requires root; takes 20 minutes)
	PYTHONPATH=tests $(PY) -m support.cluster.world $(PY) -m pytest -m slow tests/cluster $(ARGS)

simulate: venv ## run 1,000 simulations of a cluster; ARGS="--seed N" runs one and prints its trace
	PYTHONPATH=tests $(PY) -m simulation $(ARGS)

mutants: venv ## inject faults one by one, and report which test detects each; ARGS="--only TEXT"
	PYTHONPATH=tests $(PY) -m mutants.run $(ARGS)

site: venv ## build the documentation site in build/site; warnings are errors
	$(PY) docs/site/build.py build/site

wheels: venv ## build the sdist and the wheels in dist/, with and without the C extension
	sh .ci/wheels dist
	@ls dist

release-check: venv site ## build the release in dist/, install it in empty environments, follow the tutorial, and measure it
	$(PY) -m pytest tests/release $(ARGS)
	$(PY) -m pytest -m slow tests/first_minutes tests/docs $(ARGS)
	$(PY) benchmarks/bench.py --only throughput --jobs count --programs ours,wheel --records 5000000 --rounds 3

ci: ## check style, types, the site and the tests, as before a release
	@.ci/run

lock: ## regenerate requirements.lock (requires uv); ARGS=--upgrade for newer versions
	@sh .ci/lock $(ARGS)

clean: ## remove everything that was built, including .venv
	rm -rf src/*.egg-info src/millstream/native/*.so
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* spark-warehouse metastore_db
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
