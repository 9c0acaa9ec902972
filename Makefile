# Causeway's commands; `make help` lists them. CMake and the scripts in tools/ do the work.
SHELL := /bin/bash
JOBS ?= $(shell nproc)

.PHONY: help deps build test soak lint tidy format fuzz bench demo clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## Install what building and running need and this machine lacks (CAUSEWAY_GPU=1: for a GPU)
	@tools/deps.sh build

build: ## Build everything; binaries in build/bin/
	@cmake --preset dev
	@cmake --build build --parallel $(JOBS)

test: ## Install what is missing, build, run every test that this machine can run
	@tools/test.sh

.PHONY: faults
faults: ## Kill, stop and starve real processes in every way the tests know (an hour; as root)
	@tools/deps.sh test
	@$(MAKE) --no-print-directory build
	@rm -f build/results/faults.xml; tools/run_ctest.sh build build/results/faults.xml -C faults -L '^faults$$'; \
	  python3 tools/test_summary.py build/results/faults.xml

.PHONY: bench-faults
bench-faults: deps build ## Measure what faults cost (half an hour on a quiet machine); result in build/bench/faults.json
	@mkdir -p build/bench && python3 tests/bench/faults.py build/bench/faults.json

lint: ## Check the rules of docs/contributing.md that a script can check, and the formatting
	@python3 tests/lint/lint.py
	@python3 tests/lint/format.py || [ $$? = 77 ]

tidy: ## Run clang-tidy over the torch-free sources (slow)
	@cmake --preset tsa && cmake --build build/tsa --target causeway_proto causeway_proto_grpc
	@python3 tools/tidy.py build/tsa

format: ## Format all C++ sources
	@python3 tests/lint/format.py --fix

fuzz: ## Fuzz every parser of bytes from outside for a minute each (FUZZ_SECONDS=600: longer; FUZZ=pki: one)
	@tools/fuzz.sh $(or $(FUZZ_SECONDS),60) $(FUZZ)

SEEDS ?= 20000
FIRST_SEED ?= 2000
soak: deps ## Simulate SEEDS fleets from FIRST_SEED on (docs/contributing.md)
	@cmake --preset dev && cmake --build build --parallel $(JOBS) --target causeway_sim
	@tools/soak.sh build/bin/causeway_sim $(FIRST_SEED) $(SEEDS) $(JOBS)

bench: deps build ## Run the benchmarks; results in build/bench/
	@tools/bench.sh

demo: deps build ## Train a model over two unlike sites on this machine
	@tools/demo.sh

clean: ## Remove what was built (not what was installed)
	rm -rf build demo
