# make demo    the main job, in the built-in lab: climb the ladder, show the result, write out/boost.html
# make test    everything CI runs
# make check   format, clippy, docs, unit tests: before each commit
# make loom    the concurrent parts of the datapath under the model checker, a few seconds
# make bench   every performance claim, measured again here
# make fuzz    every parser under the fuzzer, for FUZZ_SECONDS each

SHELL := /bin/bash
FUZZ_SECONDS ?= 60

.PHONY: demo test check loom bench fuzz setup build lint docs unit

demo: build
	@mkdir -p out
	@target/release/udpath boost --lab --seconds 0.12 --bound 2.5 --blocks 7 --report out/boost.html

test: setup lint docs loom
	cargo build --workspace --locked
	cargo test --workspace --locked --no-fail-fast
	bash scripts/check-habits.sh

check: setup lint docs unit

loom:
	RUSTFLAGS="--cfg loom" cargo test -p udpath-stack --release --test loom --target-dir target/loom --locked

bench: build
	@scripts/setup.sh bench
	@cargo run --release --locked -q -p udpath-bench -- $(BENCH)

fuzz: setup
	bash fuzz/run.sh $(FUZZ_SECONDS)

setup:
	@scripts/setup.sh

build: setup
	@cargo build --release --locked --quiet

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

unit:
	cargo test --workspace --lib --bins --locked
