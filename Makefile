# Entry points. `make run` installs dependencies, builds Orrery and deploys an example. `make test`
# installs dependencies and runs every check; CI runs the same. Both work from a fresh clone on a
# machine with Rust, Python and Node; .ci/setup installs the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# Cargo's directory, for shells that have not sourced its environment file.
export PATH := $(HOME)/.cargo/bin:$(PATH)
# A snapshot that differs fails its test and is never silently rewritten.
export INSTA_UPDATE ?= no

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
ORRERY := $(TARGET_DIR)/release/orrery
# Fully optimized binary for benchmarks.
DIST := $(TARGET_DIR)/dist/orrery
EXAMPLE := examples/hello

.PHONY: help setup run build build-agent console dist test check check-format lint unit-tests doc-tests check-docs script-tests sdk-tests console-tests probe-tests classic-tests api-tests fault-tests quick-module-tests test-modules bench bench-scheduler bench-solver bench-converge bench-deploy bench-host bench-api bench-ssh bench-agents fmt docs audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install missing dependencies on this machine
	@.ci/setup

run: build ## build, then deploy the example into a scratch directory
	$(ORRERY) deploy --project $(EXAMPLE)

build: setup console ## build the binary, with the web console if Node is installed
	cargo build --release -p orrery

# Without Node, the binary is built without the console and says so in a browser.
console: ## build the web console into console/dist, which the binary embeds
	@if command -v npm >/dev/null; then \
		npm --prefix console ci --no-audit --no-fund --loglevel error && npm --prefix console run --silent build; \
	else \
		echo 'console: skipped: it needs Node 20.19 or newer' >&2; \
	fi

build-agent: setup ## build the binary of a remote agent alone, without compiler and databases
	cargo build --release -p orrery-agent-cli

test: ## run every check: format, lints, tests, documentation
	@.ci/setup tests
	@started=$$SECONDS; failed=; timings=; logs=$(TARGET_DIR)/test-logs; mkdir -p $$logs; \
	for step in check-format lint unit-tests doc-tests check-docs script-tests sdk-tests console-tests probe-tests classic-tests api-tests fault-tests quick-module-tests; do \
		step_started=$$SECONDS; \
		printf '\n== %s\n' "$$step"; \
		$(MAKE) "$$step" 2>&1 | tee $$logs/$$step || { failed+=" $$step"; .ci/failures --names $$step $$logs/$$step; }; \
		timings+="$$(printf '%6d s  %s' "$$((SECONDS - step_started))" "$$step")"$$'\n'; \
	done; \
	for step in $$failed; do .ci/failures $$step $$logs/$$step; done; \
	printf '\n%s%6d s  together\n' "$$timings" "$$((SECONDS - started))"; \
	if [ -n "$$failed" ]; then printf '== FAILED:%s\n' "$$failed"; exit 1; fi; \
	echo '== all checks passed'

check: ## check format, lints and tests of the crates that differ from origin/main (BASE=COMMIT for another base)
	@.ci/check $(BASE)

check-format:
	cargo fmt --all -- --check

lint:
	cargo clippy --workspace --all-targets --quiet -- -D warnings

# `cargo test`, not a runner with a process per test: the language suite has more than a thousand cases
# in one binary, and reading the corpus for each of them takes minutes. Tests spend half of their time
# waiting for servers and processes, so more threads run than there are processors. Examples are not
# built here: the target `lint` checks that they compile.
unit-tests:
	cargo test --workspace --lib --bins --tests --no-fail-fast --quiet -- --test-threads $$(( $$(nproc) * 3 / 2 ))

doc-tests:
	cargo test --workspace --doc --quiet

# Checks rustdoc only: tests of `xtask` cover the book's links, contents, examples and diagnostic pages.
check-docs:
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --quiet

script-tests:
	python3 -m unittest discover --quiet --start-directory bench/compile
	python3 -m unittest discover --quiet --start-directory tests/compatibility
	python3 tests/mutations/run.py --check

# Runs with every installed Python version.
sdk-tests:
	python3 sdk/python/check.py --dir $(TARGET_DIR)/sdk

# Checks and builds the web console, and drives it in a browser against a server.
console-tests:
	npm --prefix console ci --no-audit --no-fund --loglevel error
	npm --prefix console run --silent lint
	npm --prefix console run --silent check
	npm --prefix console run --silent test
	npm --prefix console run --silent build
	cargo build -p orrery --quiet
	ORRERY=$(abspath $(TARGET_DIR)/debug/orrery) npm --prefix console run --silent journeys

# Compiles and deploys models that use published modules.
probe-tests:
	cargo build -p orrery --quiet
	ORRERY=$(abspath $(TARGET_DIR)/debug/orrery) python3 -m unittest discover --quiet --start-directory tests/probes

# Runs the published Inmanta client, its command line and its export against an Orrery server.
classic-tests:
	cargo build -p orrery --quiet
	python3 tests/classic/run.py --orrery $(TARGET_DIR)/debug/orrery --dir $(TARGET_DIR)/classic

# Breaks each dependency of a server a few times; `python3 tests/faults/run.py` does so for an hour.
fault-tests:
	cargo build -p orrery --quiet
	python3 tests/faults/run.py --orrery $(TARGET_DIR)/debug/orrery --short

# Sends generated requests to every operation of the server's API.
api-tests:
	cargo build -p orrery --quiet
	python3 tests/api/run.py --orrery $(TARGET_DIR)/debug/orrery --dir $(TARGET_DIR)/api

# Tests some downloaded published modules: see tests/compatibility.
quick-module-tests:
	cargo build -p orrery --quiet
	python3 tests/compatibility/run.py --orrery $(TARGET_DIR)/debug/orrery --quick

test-modules: build ## install, compile and test all published modules (many minutes); MODULES_FLAGS='--help' lists the options
	python3 tests/compatibility/run.py --orrery $(ORRERY) $(MODULES_FLAGS)

dist: setup console ## build the fully optimized binary for packages and benchmarks (15 minutes)
	cargo build --profile dist -p orrery
	.ci/split-debug $(DIST)

bench: dist ## compare with the reference compiler (minutes); BENCH_FLAGS='--help' lists the options
	python3 bench/compile/run.py --orrery $(DIST) $(BENCH_FLAGS)

bench-scheduler: ## measure the scheduler alone (a minute)
	python3 bench/scheduler/run.py $(BENCH_FLAGS)

bench-solver: ## measure the cluster solver (a minute)
	python3 bench/solver/run.py $(BENCH_FLAGS)

bench-converge: ## install other tools and compare deploys of many files with them (up to an hour)
	python3 bench/converge/run.py $(BENCH_FLAGS)

bench-host: ## measure Python handlers (a minute)
	python3 bench/host/handlers.py $(BENCH_FLAGS)

bench-api: dist ## measure the API of a server (minutes; needs wrk, PostgreSQL and optionally Inmanta: see bench/api)
	python3 bench/api/run.py --orrery $(DIST) $(BENCH_FLAGS)

bench-ssh: ## install Ansible and pyinfra and compare deploys over SSH with them (minutes; needs sshd and a release build)
	python3 bench/ssh/run.py $(BENCH_FLAGS)

bench-agents: ## measure a gateway with 10,000 simulated agents (minutes; needs a release build and 20,000 descriptors)
	python3 bench/agents/run.py $(BENCH_FLAGS)

bench-deploy: ## measure deploys of 100,000 no-op resources (a minute)
	python3 bench/deploy/run.py $(BENCH_FLAGS)

fmt: ## format the Rust sources
	cargo fmt --all

docs: ## build the book into target/book
	@command -v mdbook >/dev/null || cargo install --locked mdbook
	mdbook build docs

audit: ## check licences, bans and known vulnerabilities of dependencies
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny --all-features check

clean: ## remove build artifacts
	cargo clean
