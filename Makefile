# All commands of the project; hooks and CI call these. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST_SOURCES := $(shell find rust/src rust/py -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock pyproject.toml
# rust-toolchain.toml names the channel.
export CARGO_TERM_COLOR ?= never
export RUSTDOCFLAGS ?= -D warnings

# The example service has its own lock file, to keep web servers out of the package's.
SERVICE := --manifest-path examples/service/rust/Cargo.toml --target-dir target/service

.DEFAULT_GOAL := help
.PHONY: help install build build-c build-tests lint-and-build-tests header demo examples docs test test-core test-c test-python lint lint-rust format format-check typecheck stubs bench bench-peers bench-grid bench-fastrvm \
	bench-friedman1 bench-widths bench-public bench-likelihoods bench-groups bench-million bench-columns bench-phase bench-tipping2001 bench-schemes bench-search bench-mrvm bench-revm bench-serving bench-dask test-service test-dist \
	coverage coverage-rust mutants test-cross test-oldest test-clients test-msrv test-free-threaded fuzz faults surface proofs soak sanitize audit wheel lock clean ci

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

# --- environment -----------------------------------------------------------------------------------------------------

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed; set PYTHON")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: requirements/demo.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	@touch $@

$(VENV)/docs.stamp: requirements/docs.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

# Every environment above contains maturin.
$(VENV)/build.stamp: $(RUST_SOURCES)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --quiet
	@touch $@

install: $(VENV)/dev.stamp ## Create .venv with everything needed for development
	@$(MAKE) --no-print-directory $(VENV)/build.stamp

build: install ## Compile the extension into .venv (release mode)

build-c: ## Compile the libraries for C into target/release
	cargo build --release --locked --quiet --package sparsebayes-c

build-tests: ## Compile the Rust tests
	cargo test --locked --quiet --no-run

# In sequence: on two cores a third job would delay the extension, which takes longest.
lint-and-build-tests: lint-rust
	@$(MAKE) --no-print-directory build-tests

header: ## Regenerate rust/c/include/sparsebayes.h
	WRITE_HEADER=1 cargo test --locked --quiet --package sparsebayes-c --test header

# --- the two commands ------------------------------------------------------------------------------------------------

demo: $(VENV)/demo.stamp ## Compare with scikit-learn's SVMs on real data: a table and a picture
	@$(MAKE) --no-print-directory $(VENV)/build.stamp
	$(BIN)/python examples/demo.py

examples: $(VENV)/demo.stamp ## Run examples/ and redraw their pictures in docs/
	@$(MAKE) --no-print-directory $(VENV)/build.stamp
	$(BIN)/python examples/error_bars.py
	$(BIN)/python examples/log_odds.py
	$(BIN)/python examples/mrvm.py
	$(BIN)/python examples/digits_on_a_chip.py

docs: $(VENV)/docs.stamp ## Build the documentation into build/docs; a warning is an error
	@$(MAKE) --no-print-directory $(VENV)/build.stamp
	$(BIN)/python -m sphinx -W --keep-going -q -d build/doctrees -b html docs build/docs

test: test-core test-c test-python ## Run the Rust, the C and the Python tests

# --- checks ----------------------------------------------------------------------------------------------------------

# The same random cases each time; `make surface` draws new ones.
test-core: export PROPTEST_RNG_SEED := 1
test-core: ## Run the Rust tests: all features, without threads, predictor only, C interface
	cargo test --locked --quiet
	cargo test --locked --quiet --no-default-features --features fit --lib --tests
	cargo test --locked --quiet --no-default-features --lib --tests
	cargo test --locked --quiet --package sparsebayes-c

test-c: build-c ## Run the C and C++ tests with both libraries, under valgrind if it is installed
	CC="$(CC)" CXX="$(CXX)" tests/c/run.sh target/release

# With two BLAS threads in each of two processes, some tests take ten times as long.
test-python: install ## Run the Python tests and doctests, two at a time
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: install lint-rust ## Lint Rust, Python and the Rust documentation
	$(BIN)/ruff check .

lint-rust: ## Lint Rust and its documentation
	cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
	cargo clippy --locked --quiet --no-default-features --all-targets -- -D warnings
	cargo doc --locked --quiet --no-deps
	cargo clippy --locked --quiet $(SERVICE) --all-targets -- -D warnings

format: install ## Format Rust and Python in place
	cargo fmt --all
	cargo fmt --manifest-path examples/service/rust/Cargo.toml
	cargo fmt --manifest-path rust/fuzz/Cargo.toml
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: install ## Fail if anything is not formatted
	cargo fmt --all --check
	cargo fmt --manifest-path examples/service/rust/Cargo.toml --check
	cargo fmt --manifest-path rust/fuzz/Cargo.toml --check
	$(BIN)/ruff format --check .

typecheck: install ## Check the types of the Python package, examples/ and the code in README.md
	$(BIN)/mypy
	@mkdir -p build
	awk '/^```python$$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md > build/readme.py
	$(BIN)/mypy build/readme.py

stubs: install ## Check the stubs of the extension against the binary
	MYPYPATH=python $(BIN)/python -m mypy.stubtest sparsebayes._core --mypy-config-file pyproject.toml

# No incremental builds: nothing is built twice. One thread links the extension while clippy and the tests are compiled.
ci: export CARGO_INCREMENTAL = 0
ci: ## Run everything that CI runs
	@$(MAKE) --no-print-directory --jobs=2 install lint-and-build-tests
	@$(MAKE) --no-print-directory format-check lint typecheck stubs test

# --- the rest --------------------------------------------------------------------------------------------------------

bench: ## Run the Rust benchmarks
	cargo bench --locked

bench-peers: install ## Compare time and evidence with libsvm, fastrvm and ARDRegression (docs/notebook/peers.md)
	$(BIN)/python benches/python/bench_peers.py

bench-grid: install ## Compare time with libsvm and oneDAL for many numbers of rows and inputs
	$(BIN)/python benches/python/bench_grid.py

bench-tipping2001: install ## Reproduce the tables of Tipping (2001); SPARSEBAYES_DATA is the folder of data files
	$(BIN)/python benches/python/bench_tipping2001.py

# Finished cross-validations are kept, so that an interrupted run resumes.
bench-mrvm: install ## Reproduce the tables of Psorakis et al. (2010); SPARSEBAYES_DATA is the folder of data files
	@mkdir -p target
	$(BIN)/python benches/python/bench_mrvm.py --keep target/bench-mrvm.jsonl

bench-schemes: install ## Compare MacKay, EM and variational fits with the sequential scheme
	$(BIN)/python benches/python/bench_schemes.py

bench-search: install ## Measure the gain and the time of search="exchange"
	$(BIN)/python benches/python/bench_search.py

# Kept as for bench-mrvm.
bench-phase: install ## Compare methods of compressed sensing: spikes recovered
	@mkdir -p target
	$(BIN)/python benches/python/bench_phase.py --keep target/bench-phase.jsonl

bench-revm: install ## Reproduce the tables of Kropotov & Vetrov (2007); SPARSEBAYES_DATA is the folder of data files
	$(BIN)/python benches/python/bench_revm.py

bench-fastrvm: install ## Compare time and evidence with fastrvm
	$(BIN)/python benches/python/bench_fastrvm.py

bench-million: install ## Compare fits of a million rows with scikit-learn and LightGBM (docs/notebook/cost.md)
	$(BIN)/python benches/python/bench_million.py

# celer needs an older scikit-learn than the other environments have.
bench-columns: install ## Compare fits on columns with the lasso of scikit-learn, celer and skglm
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/peers.txt
	PYTHONPATH=python .venv-peers/bin/python benches/python/bench_columns.py

bench-widths: install ## Measure learned widths on real and made tables; SPARSEBAYES_DATA is the folder of data files
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benches/python/bench_widths.py

bench-public: install $(VENV)/docs.stamp ## Measure errors and error bars on some 1700 problems of public tables
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benches/python/bench_public.py

bench-likelihoods: install ## Measure fits with outliers, and times of all likelihoods; SPARSEBAYES_DATA is the folder of data files
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benches/python/bench_likelihoods.py

bench-groups: install ## Measure columns in groups; beside gamma-MAP if mne is installed
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benches/python/bench_groups.py

bench-friedman1: install ## Measure learned widths on Friedman's first function, 20 draws
	$(BIN)/python benches/python/friedman1.py

bench-dask: install ## Measure the gain from a second Dask worker on one computer
	$(BIN)/python benches/python/bench_dask.py

bench-serving: install ## Compare the time of predictions with SVR, NumPy and onnxruntime (docs/notebook/serving.md)
	$(BIN)/python benches/python/bench_serving.py

test-service: install ## Test both example services (installs the requirements of the Python one)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r examples/service/requirements.txt
	$(BIN)/python -m pytest tests/python/test_service.py
	cargo test --locked --quiet $(SERVICE)

wheel: install ## Build a wheel into dist/
	$(BIN)/maturin build --release --locked --out dist

test-dist: install ## Build the wheel and the source distribution, and try each in a clean environment
	tests/dist/run.sh $(PYTHON) $(abspath $(BIN))/maturin

# Each kind of environment has its own folder; the extension in the source tree is the last one built.
test-oldest: ## Run the Python tests with the oldest supported dependencies
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/oldest.txt
	VIRTUAL_ENV=$(abspath .venv-oldest) .venv-oldest/bin/maturin develop --release --locked --quiet
	.venv-oldest/bin/python -m pytest

# qemu-user emulates the processors: 64-bit ARM, a big-endian one, a 32-bit one.
CROSS := aarch64 s390x i686
test-cross: export PROPTEST_RNG_SEED := 1
test-cross: ## Run the tests of the predictor and of model files for other processors (needs qemu-user)
	tests/cross/run.sh $(CROSS)

coverage: install ## Measure which branches of Python and which lines of Rust the tests run (needs cargo-llvm-cov)
	@$(MAKE) --no-print-directory coverage-rust
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/python --cov=sparsebayes --cov-branch \
		--cov-report=term-missing:skip-covered

# LLVM_COV and LLVM_PROFDATA name tools of the compiler's LLVM version where rustup has no llvm-tools.
coverage-rust: export PROPTEST_RNG_SEED := 1
coverage-rust: ## Measure which lines of Rust the Rust tests run, by folder; target/coverage has the lines
	@command -v cargo-llvm-cov > /dev/null || \
		{ echo "make coverage needs cargo-llvm-cov: cargo install --locked cargo-llvm-cov" >&2; exit 2; }
	cargo llvm-cov --locked --quiet --lib --tests --ignore-filename-regex '/tests?(\.rs|/)' --html --output-dir target/coverage
	@cargo llvm-cov report --ignore-filename-regex '/tests?(\.rs|/)' --lcov | awk -F: ' \
		/^SF:/ { folder = $$2; sub(/.*rust\/src\//, "", folder); sub(/\/.*/, "", folder) } \
		/^LF:/ { lines[folder] += $$2; all += $$2 } /^LH:/ { run[folder] += $$2; all_run += $$2 } \
		END { for (f in lines) printf "%-14s %6d lines, %5.1f %% run\n", f, lines[f], 100 * run[f] / lines[f]; \
			printf "%-14s %6d lines, %5.1f %% run\n", "all", all, 100 * all_run / all }' | sort -k4

# Without the feature fit, predictor/ takes seconds for each change:
# make mutants FILES='rust/src/predictor/**' FLAGS='--no-default-features --features save --exclude **/of_posterior.rs'
mutants: FILES := rust/src/linalg/** rust/src/predictor/**
mutants: SHARD := 0/1
mutants: export PROPTEST_RNG_SEED := 1
mutants: ## Change one expression of FILES at a time (SHARD of them), and list changes that no Rust test notices (needs cargo-mutants)
	@command -v cargo-mutants > /dev/null || \
		{ echo "make mutants needs cargo-mutants: cargo install --locked cargo-mutants" >&2; exit 2; }
	@mkdir -p target
	cargo mutants --output target --shuffle --shard $(SHARD) --sharding round-robin $(FILES:%=--file '%') $(FLAGS)

test-clients: ## Run the tests with packages that use ours (Python 3.11)
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/clients.txt
	VIRTUAL_ENV=$(abspath .venv-clients) .venv-clients/bin/maturin develop --release --locked --quiet
	OPENBLAS_NUM_THREADS=1 .venv-clients/bin/python -m pytest tests/clients

test-msrv: ## Check that the oldest supported compiler compiles the sources
	version=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) && rustup toolchain install --profile minimal $$version && \
		cargo +$$version check --locked --workspace --all-features

test-free-threaded: ## Run fits and predictions with a free-threaded Python (set PYTHON)
	$(PYTHON) -c 'import sys; sys.exit(sys._is_gil_enabled() and "PYTHON has a global lock; name a free-threaded one")'
	$(PYTHON) -m venv .venv-free-threaded
	.venv-free-threaded/bin/python -m pip install --quiet --disable-pip-version-check maturin scikit-learn pandas pytest \
		pytest-timeout hypothesis
	VIRTUAL_ENV=$(abspath .venv-free-threaded) .venv-free-threaded/bin/maturin develop --release --locked --quiet --no-default-features
	.venv-free-threaded/bin/python -m pytest tests/python/test_predictor.py tests/python/test_regression.py \
		tests/python/test_classification.py tests/python/test_running.py

# Without debug assertions: rounding breaks "predicted gain = achieved gain" at the ends of arithmetic.
FUZZ := cargo +nightly fuzz run --fuzz-dir rust/fuzz --release
fuzz: SECONDS := 20
fuzz: ## Fuzz model files, the C interface and fits for SECONDS each (needs nightly Rust and cargo-fuzz)
	@cargo +nightly --version > /dev/null 2>&1 || \
		{ echo "make fuzz needs nightly Rust: rustup toolchain install nightly --profile minimal" >&2; exit 2; }
	@command -v cargo-fuzz > /dev/null || { echo "make fuzz needs cargo-fuzz: cargo install --locked cargo-fuzz" >&2; exit 2; }
	@mkdir -p rust/fuzz/corpus/model_file
	$(FUZZ) model_file rust/fuzz/corpus/model_file tests/golden/format-1 tests/golden/format-2 -- -max_total_time=$(SECONDS)
	$(FUZZ) c_interface -- -max_total_time=$(SECONDS)
	$(FUZZ) fits -- -max_total_time=$(SECONDS) -timeout=15

faults: TIMES := 200
faults: install ## Test signals (TIMES each), Ctrl-C, little memory, memory leaks and threads
	$(BIN)/python tests/faults/run.py --times $(TIMES)
	$(BIN)/python tests/faults/endure.py
	$(BIN)/python tests/faults/little.py
	$(BIN)/python tests/faults/prompt.py

surface: EXAMPLES := 2000
surface: install ## Run each test that draws data or arguments with EXAMPLES random ones, new ones each time
	PROPTEST_CASES=$(EXAMPLES) cargo test --locked --quiet
	SURFACE_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q -m hypothesis tests/python

proofs: install ## Prove in ball arithmetic that fits of the tests' problems are maxima, and print what was proved
	OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests/python $(BIN)/python tests/golden/proofs.py

soak: SECONDS := 600
soak: install ## Test both example services under full load, with new models, for SECONDS each (needs wrk)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r examples/service/requirements.txt
	cargo build --release --locked --quiet $(SERVICE)
	$(BIN)/python tests/faults/soak.py --seconds $(SECONDS)

sanitize: install ## Run the tests under AddressSanitizer and ThreadSanitizer (needs nightly Rust)
	tests/faults/sanitize.sh $(BIN)/python

audit: install ## Check locked packages for known vulnerabilities (Rust packages need cargo-deny)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --disable-pip --requirement requirements/dev.txt --requirement requirements/demo.txt \
		--requirement requirements/docs.txt
	if command -v cargo-deny > /dev/null; then cargo deny --locked check && \
		cargo deny --manifest-path examples/service/rust/Cargo.toml --locked check; \
	else echo "cargo-deny is not installed: the Rust packages were not checked" >&2; fi

# A universal resolver writes pins for every supported Python. It needs `uv` on the path.
LOCK = uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-header \
	--no-annotate pyproject.toml

lock: ## Renew the lock files (needs uv)
	$(LOCK) --group development -o requirements/dev.txt
	$(LOCK) --group build --group demo -o requirements/demo.txt
	$(LOCK) --group build --group demo --group docs -o requirements/docs.txt
	$(subst --universal,,$(LOCK)) --group build --group oldest -o requirements/oldest.txt
	$(subst --universal --python-version 3.10,--python-version 3.11,$(LOCK)) --group clients -o requirements/clients.txt
	cargo update
	cargo update --manifest-path examples/service/rust/Cargo.toml

clean: ## Remove everything that was built
	rm -rf $(VENV) .venv-oldest .venv-clients .venv-free-threaded target dist build demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf docs/auto_examples docs/generated docs/sg_execution_times.rst
	find python -name '*.so' -delete
