# The three commands a newcomer needs. Everything else is cargo's and pip's.

CARGO ?= cargo
PYTHON ?= python3
# `make test SETUP=no` installs nothing.
SETUP ?= yes
# Arguments for `make run`: make run ARGS="a4-fig5 --out results"
ARGS ?=
# Seeds of `make run`, since one alone misleads; `--seeds` in ARGS goes before it.
SEEDS ?= 4
# Where the Python package is installed for its tests: a fresh environment, never the source tree.
VENV ?= target/venv
WHEELS = target/wheels
# The release of mdBook that builds the site of the pages.
MDBOOK = 0.5.4

# Where `make install` puts things; DESTDIR goes before all of it, for packagers.
PREFIX ?= /usr
DESTDIR ?=
# The program that `make install` installs.
PROGRAM ?= target/release/waykeeper

.PHONY: install uninstall run test test-long flaky test-rust test-python test-oracle test-nvme test-clients test-fleet bench bench-nvme fidelity model-lock curves real-chip modern lint deny build python repro fuzz docs
.PHONY: packages test-packages

# What `make run` builds: only the commands that need no host (run, scenario, policy, chip, trace, capture). It does not
# optimise the policies: that does not make a run faster. If the full program is in target/release already, `make run` keeps it
# up to date instead.
ONLY_RUN = --no-default-features --config profile.release.package.waykeeper-policy.opt-level=0 \
	--config profile.release.package.waykeeper-control.opt-level=0

# What a build needs before cargo can say anything helpful.
.PHONY: tools
tools:
	@command -v $(CARGO) >/dev/null || { echo "no cargo; install Rust with https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "no C compiler (cc); on Debian: apt-get install gcc libc6-dev" >&2; exit 1; }

## Builds and runs the flagship: A4's mix under default, a4 and waykeeper.
run: tools
	scripts/show_seconds.sh $(CARGO) build --release --locked -p waykeeper-cli --target-dir target \
		$$(target/release/waykeeper daemon --help >/dev/null 2>&1 || echo $(ONLY_RUN))
	target/release/waykeeper run --extrapolate $(if $(findstring --seeds,$(ARGS)),,--seeds $(SEEDS)) $(ARGS)

## The full program: target/release/waykeeper
build: tools
	scripts/show_seconds.sh $(CARGO) build --release --locked -p waykeeper-cli --target-dir target

## The program, its unit, the readers' group, completions, manual pages and the operator's guide (docs/daemon.md); then: systemd-sysusers
install:
	@$(PROGRAM) daemon --help >/dev/null 2>&1 || { echo "no full program in target/release; run make build first" >&2; exit 1; }
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/waykeeper
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's#/usr/bin/waykeeper#$(PREFIX)/bin/waykeeper#' dist/waykeeper.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/waykeeper.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/waykeeper.service
	install -D -m 644 dist/sys-fs-resctrl.mount $(DESTDIR)$(PREFIX)/lib/systemd/system/sys-fs-resctrl.mount
	install -D -m 644 dist/sysusers.d/waykeeper.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/waykeeper.conf
	install -D -m 644 docs/daemon.md $(DESTDIR)$(PREFIX)/share/doc/waykeeper/daemon.md
	install -d $(DESTDIR)$(PREFIX)/share/waykeeper/grafana
	install -m 644 dist/grafana/*.json $(DESTDIR)$(PREFIX)/share/waykeeper/grafana
	install -D -m 644 dist/prometheus/waykeeper.rules.yml $(DESTDIR)$(PREFIX)/share/waykeeper/prometheus/waykeeper.rules.yml
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(PROGRAM) man --out $(DESTDIR)$(PREFIX)/share/man/man1
	$(PROGRAM) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/waykeeper
	$(PROGRAM) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_waykeeper
	$(PROGRAM) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/waykeeper.fish
	chmod 644 $(DESTDIR)$(PREFIX)/share/man/man1/waykeeper*.1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions/waykeeper \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_waykeeper $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/waykeeper.fish

# What `make install` puts below PREFIX.
INSTALLED = bin/waykeeper lib/systemd/system/waykeeper.service lib/systemd/system/sys-fs-resctrl.mount \
	lib/sysusers.d/waykeeper.conf share/doc/waykeeper share/waykeeper share/man/man1/waykeeper.1 share/man/man1/waykeeper-*.1 \
	share/bash-completion/completions/waykeeper share/zsh/site-functions/_waykeeper share/fish/vendor_completions.d/waykeeper.fish

## Ends the daemon and restores every knob, as the removal of a package does, then removes what `make install` installed.
## Configuration, profile, journal and recordings stay. With DESTDIR, which no daemon runs from, it only removes.
uninstall:
	test -n "$(DESTDIR)" || ! test -x $(PREFIX)/bin/waykeeper || PATH="$(PREFIX)/bin:$$PATH" sh dist/deb/prerm remove
	cd $(DESTDIR)$(PREFIX) && rm -rf $(INSTALLED)

## Sets up what the tests need (SETUP=no declines), then all tests; CONTRIBUTING.md has the exit status.
test:
	SETUP=$(SETUP) $(PYTHON) scripts/make_test.py --cargo $(CARGO)

## Every test in its long form, and those that only it has: more seeds, inputs, faults, notebooks (CONTRIBUTING.md). Hours.
test-long:
	SETUP=$(SETUP) $(PYTHON) scripts/make_test.py --cargo $(CARGO) --long

## The tests N times beside other work; each that failed at least once is named.
N ?= 20
flaky:
	$(PYTHON) scripts/flaky.py --cargo $(CARGO) --rounds $(N)

test-rust:
	$(PYTHON) scripts/run_tests.py --cargo $(CARGO)

## The Python package's tests on a wheel in a fresh environment.
test-python:
	$(PYTHON) scripts/make_test.py --only-python

## The resctrl of real kernels, in QEMU guests, judges crates/kernel; downloads Debian's kernels once (oracle/README.md).
test-oracle:
	$(PYTHON) -m unittest discover -s guests/tests -t .
	$(PYTHON) -m unittest discover -s oracle/tests -t .
	$(PYTHON) -m oracle.run $(ORACLE_ARGS)

## memload's commands to an emulated NVMe device, in a QEMU guest (nvme/README.md).
test-nvme:
	$(PYTHON) -m unittest discover -s guests/tests -t .
	$(PYTHON) -m unittest discover -s nvme/tests -t .
	$(PYTHON) -m nvme.run $(NVME_ARGS)

## Programs of other projects on the virtual host; downloads and builds them once (clients/README.md).
test-clients:
	$(PYTHON) -m unittest discover -s clients/tests -t .
	$(PYTHON) -m clients.run $(CLIENTS_ARGS)

## The packages, and with what is in them: the chart on a real cluster and on a real containerd, the daemon as its plugin, sweeps on
## Slurm. Downloads and builds other projects' programs once (fleet/README.md). FLEET_ARGS="--only PART" runs one part, without packages.
test-fleet:
	$(PYTHON) -m unittest discover -s fleet/tests -t .
	$(if $(findstring --only,$(FLEET_ARGS)),,$(MAKE) test-packages)
	$(PYTHON) -m fleet.run $(if $(findstring --only,$(FLEET_ARGS)),,--packaged) $(FLEET_ARGS)

## A Debian package, an RPM, a wheel with the program inside and a container image, in target/packages (packages/README.md).
packages:
	$(PYTHON) -m packages.build $(PACKAGES_ARGS)

## Each of them installed in a clean root by its users' own tool, used, upgraded, removed. Needs root and /dev/fuse.
test-packages:
	$(PYTHON) -m unittest discover -s packages/tests -t .
	$(PYTHON) -m packages.check $(PACKAGES_ARGS)

## Coverage-guided fuzzing of every reader, HOURS of wall time for all targets together (fuzz/README.md). Needs a C++ compiler.
HOURS ?= 1
fuzz:
	$(PYTHON) -m fuzz.run --cargo $(CARGO) --hours $(HOURS) $(FUZZ_ARGS)

## memload beside Debian's fio, in that guest.
bench-nvme:
	$(PYTHON) -m nvme.bench $(NVME_ARGS)

## The Python package in an environment of its own, to use: target/venv/bin/python
python:
	$(PYTHON) -m venv $(VENV)
	$(MAKE) wheel
	$(VENV)/bin/pip install --quiet --force-reinstall --no-deps $(WHEELS)/waykeeper-*.whl
	$(VENV)/bin/pip install --quiet "$$(ls $(WHEELS)/waykeeper-*.whl)[test]"

.PHONY: wheel
wheel:
	$(VENV)/bin/pip install --quiet "maturin>=1.9,<2"
	rm -rf $(WHEELS)
	cd python && ../$(VENV)/bin/maturin build --quiet --profile release --locked --out ../$(WHEELS)

## Runs every figure of the papers (hours; QUICK=--quick: minutes) and writes repro-out/report.html.
repro: python
	$(VENV)/bin/python -m waykeeper.repro run all $(QUICK) --out repro-out

## The pages as a site, target/site/index.html, with every link checked. The first time it builds mdBook (minutes).
docs:
	test -x target/tools/bin/mdbook || $(CARGO) install mdbook --version $(MDBOOK) --locked --no-default-features --root target/tools
	$(PYTHON) scripts/build_docs.py --mdbook target/tools/bin/mdbook --out target/site

# Checks with programs of other projects. They need Debian 12, so Python 3.11; their rules are those of the package.
HARNESSES = clients fleet guests nvme oracle packages scripts
HARNESS_RULES = --config python/pyproject.toml --target-version py311

## The form of the code, and lints, also of the small build of `make run`, and the lock file of fuzz/. After `make test`, which makes $(VENV) with ruff in it.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p waykeeper-cli --no-default-features --locked -- -D warnings
	$(CARGO) metadata --manifest-path fuzz/Cargo.toml --locked --format-version 1 > /dev/null
	$(VENV)/bin/ruff format --check python && $(VENV)/bin/ruff check python
	$(VENV)/bin/ruff format --check $(HARNESS_RULES) $(HARNESSES) && $(VENV)/bin/ruff check $(HARNESS_RULES) $(HARNESSES)
	$(MAKE) deny

## The crates that the build uses (deny.toml): licences, duplicates, sources; known vulnerabilities where their database can be had.
deny:
	PATH="$(VENV)/bin:$$PATH" $(CARGO) deny --locked check --hide-inclusion-graph licenses bans sources
	@if PATH="$(VENV)/bin:$$PATH" $(CARGO) deny fetch db 2> /dev/null; \
	then PATH="$(VENV)/bin:$$PATH" $(CARGO) deny --locked check --hide-inclusion-graph advisories; \
	else echo "advisories not checked: https://github.com/RustSec/advisory-db cannot be reached"; fi

## How fast the model is: medians, on this machine; BENCH_BASELINE=old.json compares. And what a sample of a host costs.
## Other simulators on the same traces, after scripts/install_peers.py; two builds in turn: scripts/bench_ab.py.
bench:
	$(CARGO) bench --locked -p waykeeper-machine --bench summary
	$(CARGO) bench --locked -p waykeeper-benches --bench decision
	$(CARGO) bench --locked -p waykeeper-linux-host --bench cost
	$(CARGO) bench --locked -p waykeeper-cli --bench interval

## Renews the curves of docs/programs.md and their picture: SPEC's profiles and the shipped traces.
curves:
	$(CARGO) run --release --locked -p waykeeper-machine --example spec_curves | $(VENV)/bin/python scripts/draw_programs.py
	$(CARGO) run --release --locked -p waykeeper-machine --example trace_curves | $(PYTHON) scripts/table_traces.py

## Renews the picture of docs/real-chip.md: measured experiments beside the model.
real-chip:
	$(CARGO) run --release --locked -p waykeeper-cli --no-default-features -- chip compare platinum-8570 --json | $(VENV)/bin/python scripts/draw_experiments.py

## Renews the picture of docs/real-chip.md that shows policies and ring sizes on a server of today (some minutes).
modern:
	mkdir -p target/modern
	for scenario in modern modern-rings; do \
		$(CARGO) run --release --locked -p waykeeper-cli --no-default-features -- run $$scenario --seeds $(SEEDS) --json > target/modern/$$scenario.json \
			|| exit 1; done
	$(VENV)/bin/python scripts/draw_modern.py target/modern/modern.json target/modern/modern-rings.json

## Runs the long simulations of crates/machine/tests again and writes their numbers, after a change of the model.
model-lock:
	WAYKEEPER_WRITE_LOCK=1 $(CARGO) test --locked -p waykeeper-machine --test suite

## Runs every published row again and writes docs/fidelity-table.md.
fidelity:
	WAYKEEPER_WRITE_TABLE=1 $(CARGO) test --release --locked -p waykeeper-machine --test suite published
