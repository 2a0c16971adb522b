# What a person types. Every target says what it is missing and how to get it.
SHELL := /bin/bash
CARGO ?= cargo
CARGO_TARGET_DIR ?= target
PREFIX ?= /usr/local
DESTDIR ?=
RELEASE := $(CARGO_TARGET_DIR)/release
PROGRAMS := $(abspath $(CARGO_TARGET_DIR)/programs)

.DEFAULT_GOAL := build
.PHONY: help build programs setup test test-long test-ways models memcheck check fmt lint doc book demo bench bench-meter install uninstall clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## the command, its libraries (target/release)
	@scripts/setup build
	$(CARGO) build --release --workspace
	@scripts/trace-directory $(RELEASE)/libnumamma_trace.so $(RELEASE)/numamma-trace

programs: ## the test programs (target/programs)
	@if [ -e tests/programs/Makefile ]; then $(MAKE) -C tests/programs OUT=$(PROGRAMS); fi

setup: ## install what building, testing and the benches need (root or sudo; else says what to install)
	@scripts/setup build tests bench

check: fmt lint doc ## formatting, clippy, the scripts of the pages and documentation, warnings are errors

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/lint-pages

doc: ## the documentation of the code (target/doc)
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --document-private-items

book: ## the documentation as a book (target/book); needs mdbook
	@type -P mdbook >/dev/null || { echo 'make: mdbook is missing, get it with: cargo install mdbook --locked' >&2; exit 1; }
	mdbook build --dest-dir $(abspath $(CARGO_TARGET_DIR))/book

test: ## setup, build, check and every test but the long ones, the NUMA lab included
	@scripts/setup build tests
	$(MAKE) programs
	$(MAKE) check
	$(CARGO) test --workspace --no-fail-fast
	@echo 'make: the tests marked "ignored, long" were left out; they are run by: make test-long'

# Tests marked #[ignore = "long: make test-long"]: each has a short form that `make test` runs.
test-long: ## the long tests: all machines of the NUMA lab, long random calls, models, valgrind, fuzzing, many traces
	@scripts/setup build tests
	$(MAKE) programs
	$(CARGO) test --workspace --tests --no-fail-fast -- --ignored --skip _in_each_way
	$(MAKE) models memcheck
	fuzz/run all 10

# `make test` runs each in some ways, and together in all of them. All in all take ten minutes, which continuous
# integration has not left.
test-ways: ## the placement tests of the lab in each way to bind a program
	@scripts/setup build tests
	$(MAKE) programs
	$(CARGO) test --test lab --no-fail-fast -- --ignored _in_each_way

models: ## the lock-free parts of the libraries with all orders of their threads (models/)
	models/run

memcheck: ## the unit tests of the libraries under valgrind
	scripts/memcheck

demo: ## the whole path on a real example, with its pages before and after
	@echo 'make demo: builds (1 to 3 minutes the first time), then profiles, advises and places an example (1 minute)'
	@$(MAKE) --no-print-directory build
	@scripts/setup build demo
	@$(MAKE) --no-print-directory programs
	@examples/demo.sh

bench: ## measure overhead, malloc, start-up and detection against the bars
	@scripts/setup build tests bench
	$(CARGO) build --release --workspace
	$(MAKE) programs
	$(CARGO) bench --bench bars
	$(CARGO) bench --bench detection
	$(CARGO) bench --bench attribution
	$(CARGO) bench --bench profiles
	$(CARGO) bench --bench export
	$(CARGO) bench --bench long_run -- --millions 30

bench-meter: ## advice and predictions against the meter of the lab (20 minutes)
	@scripts/setup build tests
	$(CARGO) build --release --workspace
	$(MAKE) programs
	NUMAMMA_METER_BARS=1 $(CARGO) test --test lab bars -- --ignored --nocapture --test-threads 1

# Not built again as root when it is there: make && sudo make install.
install: ## PREFIX=/usr/local DESTDIR=
	@[ -x $(RELEASE)/numamma ] && [ -e $(RELEASE)/libnumamma_preload_apply.so ] || $(MAKE) build
	@scripts/install install "$(RELEASE)" "$(PREFIX)" "$(DESTDIR)"

uninstall: ## PREFIX=/usr/local DESTDIR=
	@scripts/install uninstall "$(RELEASE)" "$(PREFIX)" "$(DESTDIR)"

clean: ## remove what was built
	$(CARGO) clean
