# The three commands a newcomer needs. Everything else is cargo's.

CARGO ?= cargo
# Arguments for `make run`: make run ARGS="a4-fig5 --out results"
ARGS ?=
# Seeds of `make run`, since one alone misleads; `--seeds` in ARGS goes before it.
SEEDS ?= 3

.PHONY: run test bench fidelity lint build

## Builds and runs the flagship: A4's mix under default, isolate and a4-a to a4-d.
run: build
	target/release/waykeeper run $(if $(findstring --seeds,$(ARGS)),,--seeds $(SEEDS)) $(ARGS)

build:
	$(CARGO) build --release --locked -p waykeeper-cli --target-dir target

## Everything that must hold before a commit: format, lints, tests.
test: lint
	$(CARGO) test --workspace --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

## How fast the model is: medians, on this machine; BENCH_BASELINE=old.json compares.
bench:
	$(CARGO) bench --locked -p waykeeper-machine --bench summary
	$(CARGO) bench --locked -p waykeeper-policy --bench decision

## Runs every published row again and writes docs/fidelity-table.md.
fidelity:
	WAYKEEPER_WRITE_TABLE=1 $(CARGO) test --release --locked -p waykeeper-machine --test published
