# The two commands that do everything on a fresh Debian 12 machine (as root, or with sudo):
#
#   make demo    build, then show a leader's death without a lost write; ends by itself
#   make test    build, then check style, licences, the repository's rules and run all tests
#
# CARGO_TARGET_DIR moves what is built. SKEIN_BIN and SKEIN_RUNTIME tell the tests which command
# and which runtime to start: the release build, because that is what users run.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
export SKEIN_BIN := $(TARGET)/release/skein
export SKEIN_RUNTIME := $(TARGET)/release/libskein.so

# Everything but the release is built in the profile of the tests, once.
CHECKED := --locked --profile checked
XTASK := cargo run --quiet $(CHECKED) -p xtask --

LOOM_TESTS := $(wildcard crates/arena/tests/loom*.rs)

.PHONY: help
help:
	@sed -n 's/^#   //p' Makefile

.PHONY: demo
demo: setup-demo build
	@$(XTASK) demo

# From the quickest to tell to the slowest.
.PHONY: test
test: setup-test style licences all-built run-tests planted zoo counts model-check
	@echo "make test: all passed"

.PHONY: setup-demo setup-test
setup-demo setup-test: setup-%:
	@scripts/setup.sh $*

.PHONY: build
build:
	cargo build --locked --release -p skein-cli -p skein-runtime

# Side by side: the last step of the release takes one thread only.
.PHONY: all-built tests-built
all-built:
	@$(MAKE) --no-print-directory -j2 build tests-built

tests-built:
	cargo test $(CHECKED) --workspace --no-run

.PHONY: style
style:
	shellcheck scripts/*.sh .ci/run
	cargo fmt --all --check
	cargo clippy $(CHECKED) --workspace --all-targets -- -D warnings

# Not advisories: their database is not a package, and not every machine may fetch it.
.PHONY: licences
licences:
	cargo deny --workspace check licenses bans sources

.PHONY: run-tests
run-tests: build
	scripts/guarded.sh cargo test $(CHECKED) --workspace --no-fail-fast

# Defects put back: the simulation finds them. All of them: cargo xtask planted.
.PHONY: planted
planted:
	scripts/guarded.sh $(XTASK) planted --in-tests

# Some servers as Debian has them, some in other distributions where these can be had; all of them: cargo xtask zoo.
.PHONY: zoo
zoo: build
	scripts/guarded.sh $(XTASK) zoo --in-tests
	scripts/guarded.sh $(XTASK) zoo --root debian-13 --or-skip redis python
	scripts/guarded.sh $(XTASK) zoo --root ubuntu-25.10 --or-skip redis postgres

# Instructions of the hot path against bench/counts.json.
.PHONY: counts
counts:
	$(XTASK) counts

# Every interleaving of the arena's lock-free parts, under loom.
.PHONY: model-check
model-check:
ifneq ($(LOOM_TESTS),)
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom \
	    cargo test --locked --release -p skein-arena --test 'loom*'
endif
