# make demo    climb the ladder in a lab, print the result, write out/boost.html; needs few packages, and no root
# make test    everything CI runs
# make check   format, clippy, docs, dependencies, unit tests: before each commit
# make deny    licences and known vulnerabilities of the dependencies
# make loom    the concurrent parts of the datapath under the model checker, a few seconds
# make miri    the unsafe code of the datapath's frames, rings and epochs, and of the sockets' message
#              arrays, under Miri, some minutes; installs a nightly Rust
# make asan    the unit tests of all crates with unsafe code under AddressSanitizer, some minutes; as root
# make bench   every performance claim, measured again here; writes benches/results/MACHINE-DATE.json; a bound that is missed is
#              a result (the last line counts them), a benchmark that cannot run is an error; make bench BENCH=ladder: one
# make figures the newest results of make bench, copied into README and docs
# make experiments  the published experiments, repeated: out/experiments.html, out/experiments.json; as root, some 20 minutes;
#              make experiments EXPERIMENT="ladder rps": those; make experiment-docs: that result committed, and its pages of the book
# make schemas  docs/schemas, from the types that print the documents
# make soak    every test with its campaigns whole, and miri and asan; adds to benches/results/soak; an hour and more
# make fuzz    every parser under the fuzzer with AddressSanitizer, until FUZZ_EXECUTIONS each, for FUZZ_SECONDS at most this time;
#              counts in fuzz/executions.tsv, and goes on from there
# make dist    what is published, in out/dist: Debian package, static program, container image, SBOM, checksums; make check-dist:
#              installs, upgrades, runs and purges them in a new Debian, and builds them again in another folder
# make captures  the captures of real and emulated machines that tests read, taken again; as root
# make docs    rustdoc and the book (target/doc, target/book); make book: the book alone
# make transcripts  every terminal transcript in README and docs, run again; on a quiet machine, as root

SHELL := /bin/bash
FUZZ_EXECUTIONS ?= 10000000
FUZZ_SECONDS ?= 600
# Each test binary runs in a root as new as that of a fresh machine.
FRESH_ROOT := $(CURDIR)/scripts/fresh-root.sh

# The first build takes minutes: cargo shows on a terminal how far it is.
QUIET := $(if $(MAKE_TERMERR),,--quiet)

.PHONY: demo test check loom bench figures schemas soak fuzz captures setup build lint docs rustdoc book transcripts unit deny

demo: build
	@mkdir -p out
	@target/release/udpath boost --lab --duration 120ms --bound 2.5 --blocks 7 --report out/boost.html

# What tests need is fetched while the lints use the CPUs, which leave cargo-deny's build what they do not need. Not $(MAKE),
# which `make -n` runs. The times of steps and tests are in target/test-times.tsv.
STEP := @scripts/times.sh step
test:
	@rm -f target/test-times.tsv target/test-failures.txt
	$(STEP) set-up scripts/setup.sh build
	@scripts/times.sh step "packages of tests" scripts/setup.sh test & setup=$$!; \
	  scripts/times.sh step deny nice -n 15 scripts/deny.sh & deny=$$!; \
	  for step in lint rustdoc loom; do scripts/times.sh step $$step make --no-print-directory $$step || { status=$$?; break; }; done; \
	  wait $$setup && wait $$deny && exit $${status:-0}
	$(STEP) habits scripts/check-habits.sh
	$(STEP) "published packages" scripts/check-packages.sh
	$(STEP) "check of set-up" $(FRESH_ROOT) scripts/check-setup.sh
	bash scripts/test.sh; status=$$?; scripts/times.sh show; exit $$status

check: setup lint habits rustdoc deny unit

.PHONY: habits
habits:
	bash scripts/check-habits.sh

loom:
	RUSTFLAGS="--cfg loom" cargo test -p udpath-stack --profile loom --test loom --target-dir target/loom --locked

.PHONY: miri asan
miri:
	scripts/miri.sh

asan: setup
	scripts/asan.sh

# The headline's claims, in an hour at most; bench-all has all of them. What is measured at this commit is not measured again. The
# programs run where only root can change them, as an installed one: a profile copies others before it reads their names.
.PHONY: bench-all
bench bench-all: build
	@scripts/setup.sh bench
	@cargo build --release --locked $(QUIET) -p udpath-bench
	@unshare --mount sh -c 'mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf; \
	  mount -t tmpfs -o mode=755 udpath /mnt && cp target/release/udpath target/release/udpath-bench /mnt && \
	  exec /mnt/udpath-bench $(if $(filter bench-all,$@),--all) $(BENCH)' || [ $$? -eq 1 ]

figures:
	@scripts/figures.sh

.PHONY: experiments experiment-docs
experiments: build
	@scripts/experiments.sh run $(EXPERIMENT)

experiment-docs: build
	@scripts/experiments.sh docs

schemas:
	UDPATH_WRITE_SCHEMAS=1 cargo test -p udpath --bin udpath --locked -- schemas

soak: setup
	bash scripts/soak.sh

fuzz: setup
	bash fuzz/run.sh $(FUZZ_EXECUTIONS) $(FUZZ_SECONDS)

.PHONY: dist check-dist
dist:
	@scripts/setup.sh dist
	@scripts/dist.sh

check-dist: dist
	@scripts/check-dist.sh --twice

captures: setup
	bash scripts/captures.sh

setup:
	@scripts/setup.sh test

build:
	@scripts/setup.sh build
	@[ -x target/release/udpath ] || echo "building udpath: some ten minutes on two cores"
	@cargo build --release --locked $(QUIET)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml > /dev/null # fuzz/Cargo.lock is complete

docs: rustdoc book

# rustdoc needs every crate checked. With clippy's compiler and arguments, cargo uses the checks that `lint` has made.
rustdoc:
	bash scripts/check-docs.sh
	RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ \
	  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

book:
	@bash scripts/book.sh

transcripts: build
	@bash scripts/transcripts.sh

# What cannot be checked, such as advisories without their database, is named.
deny:
	@scripts/deny.sh

unit:
	cargo test --workspace --lib --bins --locked
