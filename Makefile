# Everything starts with Python 3.11 or newer and make; the rest is set up in .venv and var/.
PYTHON ?= python3
SETUP := $(PYTHON) bootstrap/run.py

.DEFAULT_GOAL := help
.PHONY: help run stop kafka s3 hadoop kubernetes rest-catalog connector spark cluster check test test-all soak soak-demo sabotage lint fix bench screenshots lock docs-reference sbom dist try-containers

# What follows "bench" on the command line names a benchmark and is not a goal of make.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
NAMED := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
ifneq (,$(NAMED))
.PHONY: $(NAMED)
$(NAMED):;@:
endif
endif

help: ## Show the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST)

run: ## Set up what is missing and run Headgate; Ctrl-C stops it, drivers keep streaming
	@$(SETUP) manage.py up --with-parent

stop: ## Stop everything that runs from this folder, drivers included
	@$(SETUP) --as-it-is manage.py stop

kafka: ## Download the Kafka connector and a trial broker, and start the broker; make stop ends it
	@$(SETUP) bootstrap/fetch.py kafka $(ARGS)

s3: ## Build a trial S3 gateway, download its connector, and start the gateway; make stop ends it
	@$(SETUP) bootstrap/fetch.py s3 $(ARGS)

hadoop: ## Download HDFS and YARN for trials, and start both on loopback; make stop ends them
	@$(SETUP) bootstrap/fetch.py hadoop $(ARGS)

kubernetes: ## Build Kubernetes for trials, and start a cluster of two nodes; make stop ends it
	@$(SETUP) bootstrap/fetch.py kubernetes $(ARGS)

rest-catalog: ## Download Iceberg's REST catalog for the tests
	@$(SETUP) bootstrap/fetch.py rest-catalog

connector: ## Add, list or remove connectors: make connector ARGS="add avro --spark 4.2"
	@$(SETUP) bootstrap/fetch.py --connector $(ARGS)

spark: ## Add, list or remove versions of Spark for applications: make spark ARGS="add 4.2"
	@$(SETUP) bootstrap/fetch.py --sparks $(ARGS)

cluster: ## Start a trial Spark standalone cluster on loopback; make stop ends it
	@$(SETUP) manage.py cluster

check: ## Lint, types, contracts, and every test without Spark, browser or broker: a few minutes on two cores
	@$(SETUP) --dev bootstrap/check.py

test: ## Run light tests, every promise, and what has changed; ARGS="tests/domain -k restart" narrows
	@$(SETUP) --dev bootstrap/test.py $(ARGS)

test-all: ## Run every test; ARGS="kafka s3" names areas (bootstrap/areas.toml)
	@$(SETUP) --dev bootstrap/test_all.py $(ARGS)

soak: ## Try supervision on 100,000 random steps; ARGS="--steps 5000 --seed 7" repeats some
	@$(SETUP) --dev -m tests.model $(ARGS)

soak-demo: ## Break the demo on Kafka every minute for an hour, then compare all that it wrote with a batch
	@$(SETUP) bootstrap/fetch.py kafka --jars
	@$(SETUP) --dev -m tests.soak $(ARGS)

sabotage: ## Take out one guard at a time: its tests must fail; ARGS="--only lock", ARGS=--list
	@$(SETUP) --dev bootstrap/sabotage.py $(ARGS)

lint: ## Check format, style, types, import contracts and templates
	@$(SETUP) --dev bootstrap/lint.py

fix: ## Format, and fix what ruff can fix by itself
	@$(SETUP) --dev -m ruff format .
	@$(SETUP) --dev -m ruff check --fix .

bench: ## List the benchmarks; make bench NAME runs one and prints its result as a JSON line
	@$(SETUP) --dev bootstrap/bench.py $(NAMED) $(ARGS)

screenshots: ## Take the images of README and docs from a running demo; ARGS="--url URL --user NAME"
	@$(SETUP) --dev bootstrap/screenshots.py $(ARGS)

try-containers: ## Build the image, run the compose file on this host's engine, break it, measure
	@$(SETUP) bootstrap/try_containers.py $(ARGS)

docs-reference: ## Write the tables of fields in docs/, and the rules of `headgate import`, from the models
	@$(SETUP) --dev bootstrap/reference.py
	@$(SETUP) --dev bootstrap/import_rules.py

sbom: ## Write the bill of materials (CycloneDX) of wheels, jars and scripts to HEADGATE_HOME/sbom.cdx.json
	@$(SETUP) --dev bootstrap/sbom.py $(ARGS)

dist: ## Build the wheels of headgate-server and headgate-cli into dist/, with exact versions and the bill
	@$(SETUP) --dev bootstrap/dist.py $(ARGS)

lock: ## Resolve requirements*.in into the locked requirements*.txt
	@$(SETUP) --dev bootstrap/lock.py
