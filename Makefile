# The three commands a newcomer needs. Everything else is cargo's.

CARGO ?= cargo
# Arguments for `make run`: make run ARGS="a4-fig5 --out results"
ARGS ?=

.PHONY: run test bench lint build

## Builds and runs the flagship: A4's mix under default, isolate and a4-a to a4-d.
run: build
	target/release/waykeeper run $(ARGS)

build:
	$(CARGO) build --release --locked -p waykeeper-cli --target-dir target

## Everything that must hold before a commit: format, lints, tests.
test: lint
	$(CARGO) test --workspace --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

## Line events per second of the chip model.
bench:
	$(CARGO) bench --locked -p waykeeper-silicon --bench line_events
