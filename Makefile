# make help    these lines
# make demo    builds everything, compiles the example model and generates text from the CLI, from C and from Python
# make chat    builds the compiler, fetches and compiles SmolLM2-135M-Instruct (93 MB) and talks with it
# make install PREFIX=/usr/local DESTDIR=   the compiler, its header, CMake and pkg-config files, the Rust crate
# make test    everything the tests need, then all tests; prints the slowest of them
# make test-llama-cpp SUITE=llama.cpp/tools/server/tests   llama.cpp's own server tests against `llmcc serve` (MODELS=../shared/data/stories260K/gguf)
# make test-clients   clients that people use (OpenAI's in Python and JavaScript, Anthropic's, LiteLLM, LangChain, ...) and Ray Serve against `llmcc serve` (LLMCC=its path)
# make test-deploy   checks of the files in deploy/: systemd unit, Dockerfile, Kubernetes manifest
# make quick   what to run between two edits: format, unit tests, conventions; all fixtures in the evaluator
# make models  published configurations at their real sizes, without weights (CONFIGS=../shared/data/real_configs): the table in docs/models.md
# make fuzz    every fuzz target for a minute (SECONDS_EACH=60); needs cargo-fuzz and a nightly compiler, which rustup installs, or RUSTC_BOOTSTRAP=1
# make runtimes   the runtimes of the other architecture (AArch64 on x86-64), for `llmcc compile --target aarch64`; make install copies them
# make GPU=1   the compiler with GPU targets: needs LLVM and MLIR 22, which demo and plain `cargo build` do not
# make wheel   the Python package with the compiler in it, tried in an empty environment; make wheel-cuda: LLVM, for GPU targets
# make dist    a tarball with the compiler, its pages and licences
# make notices   the licences of linked crates again, after Cargo.lock has changed
# make gpu-check   the files with which a machine with a GPU checks and measures kernels and models: docs/gpu-results.md
# make gpu-call    the same with a model of each architecture, in one file to take there
# On a fresh Debian 12 with Rust 1.95 both work at once; missing packages are installed (apt-get, as root or through sudo).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

BUILD := build
VENV := $(BUILD)/venv
PY := $(VENV)/bin/python
# Whether the command line names a compiler (`make test-clients LLMCC=target/debug/llmcc`).
LLMCC_GIVEN := $(filter command line,$(origin LLMCC))
LLMCC := target/release/llmcc
MODEL := examples/tiny-llama/model
DEMO := $(BUILD)/demo
PROMPT := def read_file(path):

# NVIDIA's assembler and disassembler for the compiler's output; no GPU is needed to run them.
NVCC_WHEEL := nvidia-cuda-nvcc-cu12==12.9.86
NVDISASM_WHEEL := nvidia-cuda-nvdisasm==13.5.37
LLVM_PACKAGES := g++ llvm-22-dev libmlir-22-dev libpolly-22-dev libclang1-22 libclang-common-22-dev zlib1g-dev libzstd-dev
GPU_FEATURES := --features llmcc/gpu

.PHONY: help demo how-long chat install wheel wheel-cuda dist notices test test-clients test-deploy test-llama-cpp quick build runtimes cross deps programs programs-of-tests environments llvm ptxas python eval format lint unit plain models gpu-check gpu-call fuzz clean

ifeq ($(GPU),1)
build: deps llvm ptxas
	cargo build --release --locked $(GPU_FEATURES)
else
build: deps
	cargo build --release --locked
endif

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

# Said before anything that takes time.
how-long:
	@echo "This takes 5 to 17 minutes, nearly all of it to build the compiler; once that is built, some seconds."

demo: how-long build python
	mkdir -p $(DEMO)
	$(LLMCC) compile $(MODEL) --target native --w4 -o $(DEMO)/tiny.so
	@echo; echo "== CLI: llmcc run"
	$(LLMCC) run $(DEMO)/tiny.so -p '$(PROMPT)' -n 60 --stats
	@echo; echo "== C: examples/c/dlopen.c"
	cc -O1 -Wall -Iinclude examples/c/dlopen.c -o $(DEMO)/dlopen -ldl
	$(DEMO)/dlopen $(DEMO)/tiny.so '$(PROMPT)'
	@echo; echo "== C: examples/c/direct.c"
	cc -O1 -Wall -Iinclude examples/c/direct.c $(CURDIR)/$(DEMO)/tiny.so -o $(DEMO)/direct
	$(DEMO)/direct '$(PROMPT)'
	@echo; echo "== Python: llmcc.load(...).generate(...)"
	$(PY) -c 'import sys, llmcc; m = llmcc.load(sys.argv[1]); print(sys.argv[2] + m.generate(sys.argv[2], max_tokens=60))' $(DEMO)/tiny.so '$(PROMPT)'
	@echo; echo "Made: $(LLMCC) (the compiler), $(DEMO)/tiny.so (the model, one file), $(DEMO)/dlopen and $(DEMO)/direct (C programs using it),"
	@echo "$(VENV) (a Python environment with the llmcc package)."

# Works without a terminal, too: echo "What is the capital of France?" | make chat
# With `set -m` and a shell that waits, Ctrl-C is the conversation's alone: make would fail in the end.
chat: build
	@set -m; tools/chat/chat.sh $(LLMCC) $(BUILD)/chat; exit

PREFIX := /usr/local
DESTDIR :=

install:
	@tools/install.sh $(LLMCC) "$(PREFIX)" "$(DESTDIR)"

# The end of recipes that have collected packages of the system in `missing`.
INSTALL_MISSING = tools/packages.sh $$missing

# System packages: a C compiler (cargo links with it; the C examples need it) and Python with venv.
deps:
	@missing=""; \
	command -v cc >/dev/null || missing="$$missing build-essential"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	$(INSTALL_MISSING)
	@command -v cargo >/dev/null || { echo "Rust 1.95 or later is needed: https://rustup.rs"; exit 1; }

# Programs that build programs with models: for the tests of installed files.
programs: | deps
	@missing=""; \
	command -v cmake >/dev/null || missing="$$missing cmake"; \
	command -v pkg-config >/dev/null || missing="$$missing pkg-config"; \
	$(INSTALL_MISSING)

# LLVM and MLIR 22: Debian's, from bookworm-security.
llvm: | deps
	@tools/packages.sh $(LLVM_PACKAGES)

# The links are found by llmcc through the variables below, or on the search path.
$(BUILD)/cuda/ok: $(VENV)/ok
	$(PY) -m pip install -q --disable-pip-version-check $(NVCC_WHEEL) $(NVDISASM_WHEEL)
	mkdir -p $(BUILD)/cuda
	for tool in ptxas nvdisasm; do \
	  at="$$(find $(CURDIR)/$(VENV)/lib/python3*/site-packages/nvidia -path "*/bin/$$tool" | head -n 1)"; \
	  test -n "$$at" && ln -sf "$$at" $(BUILD)/cuda/$$tool; \
	done
	touch $@

ptxas: $(BUILD)/cuda/ok

# The package alone: tests set LLMCC where they compile, so no release build of the compiler is needed.
$(VENV)/ok: python/pyproject.toml $(wildcard python/build-backend/*.py python/llmcc/*.py) | deps
	python3 -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check --config-settings compiler=none numpy==2.2.6 pytest==8.4.2 mypy==1.18.2 tqdm==4.70.1 rich==14.1.0 ./python
	touch $@

python: $(VENV)/ok

# lm-evaluation-harness, for the tests of its adapter: no PyTorch, but Arrow, pandas and SciPy (some 700 MB, a minute).
$(VENV)/eval-ok: $(VENV)/ok python/eval-constraints.txt
	$(PY) -m pip install -q --disable-pip-version-check --config-settings compiler=none -c python/eval-constraints.txt './python[eval]'
	touch $@

eval: $(VENV)/eval-ok

# The other architecture: what builds for it, an emulator, and the runtimes of artifacts for it.
CROSS := $(BUILD)/cross
RUNTIMES := $(BUILD)/runtimes
# The microkernels against their scalar reference, in the emulator: one case in so many.
SHARE := 16

$(CROSS)/ok: tools/cross.sh | deps
	tools/cross.sh $(CROSS)

runtimes: $(CROSS)/ok
	source $(CROSS)/env.sh; cargo run --release --locked -p llmcc-rt-image --bin llmcc-runtimes -- $$LLMCC_CROSS_MACHINE $(RUNTIMES)

cross: $(CROSS)/ok
	source $(CROSS)/env.sh; \
	  RUSTC="$$LLMCC_CROSS_RUSTC" LLMCC_TEST_SHARE=$(SHARE) cargo test --locked -p llmcc-ukernels --target $$LLMCC_CROSS_TARGET
	source $(CROSS)/env.sh; \
	  $(LINTED) cargo run --locked -p llmcc-rt-image --bin llmcc-runtimes -- $$LLMCC_CROSS_MACHINE $(RUNTIMES)/quick --quick core full

format: | deps
	cargo fmt --check
	rustfmt --check --edition 2024 frontends/src/arch/models/*.rs passes/src/cost/dummy.rs codegen/src/cpu/dummy.rs # Modules that a macro declares, cargo fmt does not find.

# The lints of `make test` alone, without code.
lint: format llvm
	cargo clippy --workspace --all-targets --locked $(GPU_FEATURES) -- -D warnings
	cargo clippy -p llmcc -p llmcc-gpu --lib --bins --locked -- -D warnings # Only these differ without LLVM.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked $(GPU_FEATURES)

# Clippy as the compiler of the workspace, and rustdoc with its lints: so dependencies are compiled once, not once more
# for lints.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ \
  RUSTDOC=$(CURDIR)/tools/tests/rustdoc.sh

unit: export LLMCC_PYTHON = $(CURDIR)/$(PY)
unit: export LLMCC_PTXAS = $(CURDIR)/$(BUILD)/cuda/ptxas
unit: export LLMCC_NVDISASM = $(CURDIR)/$(BUILD)/cuda/nvdisasm
unit: export LLMCC_TEST_EVAL = 1
unit: export LLMCC_TEST_PROGRAMS = 1
unit: export LLMCC_TEST_RUNTIMES = $(CURDIR)/$(RUNTIMES)/quick
unit: llvm programs
	mkdir -p $(BUILD)
	$(MAKE) environments & environments=$$!; $(MAKE) $(CROSS)/ok & emulator=$$!; \
	  $(MAKE) programs-of-tests; wait $$environments; wait $$emulator
	$(MAKE) cross
	$(LINTED) python3 tools/tests/all.py $(BUILD)/tests.log --workspace --locked $(GPU_FEATURES)
	$(LINTED) cargo test --locked -p llmcc-features -p llmcc-rt --features llmcc-rt/grammar --test grammar # As artifacts have it: see runtime/rt/Cargo.toml.

# Downloads, while the test programs are built: one after the other, since pip changes an environment alone.
environments: python
	$(MAKE) eval
	$(MAKE) ptxas

programs-of-tests: | llvm
	$(LINTED) cargo test --no-run --workspace --locked $(GPU_FEATURES) --lib --bins --tests --examples

# Linted programs without LLVM: the only ones that differ then. With llmcc-features, dependencies have the features that
# `unit` has given them, and none is compiled again.
plain: | deps
	$(LINTED) cargo build --locked -p llmcc -p llmcc-gpu -p llmcc-features --lib --bins

test: deps format unit plain

MODELS := ../shared/data/stories260K/gguf
ifeq ($(SUITE),)
test-llama-cpp:
	@echo "skipped: give SUITE=FOLDER, the folder tools/server/tests of llama.cpp's sources"
else
test-llama-cpp: build
	python3 -m venv $(BUILD)/llama-cpp
	$(BUILD)/llama-cpp/bin/pip install --quiet --requirement $(SUITE)/requirements.txt
	$(BUILD)/llama-cpp/bin/python serve/tests/llama_cpp/run.py $(SUITE) --llmcc $(CURDIR)/$(LLMCC) --models $(MODELS) \
	  --artifacts $(BUILD)/llama-cpp/artifacts
endif

# Clients and Ray in environments of their own (2 GB), as their versions are pinned there.
CLIENTS := serve/tests/clients

$(BUILD)/clients/ok: $(CLIENTS)/requirements.txt $(CLIENTS)/package-lock.json | deps
	python3 -m venv $(BUILD)/clients
	$(BUILD)/clients/bin/pip install -q --disable-pip-version-check --no-deps --requirement $(CLIENTS)/requirements.txt
	cp $(CLIENTS)/package.json $(CLIENTS)/package-lock.json $(BUILD)/clients
	if command -v npm >/dev/null; then cd $(BUILD)/clients && npm ci --silent --no-audit --no-fund; \
	  else echo "no npm: the JavaScript client is not tested"; fi
	touch $@

$(BUILD)/ray/ok: $(CLIENTS)/ray-requirements.txt | deps
	python3 -m venv $(BUILD)/ray
	$(BUILD)/ray/bin/pip install -q --disable-pip-version-check --no-deps --requirement $(CLIENTS)/ray-requirements.txt
	touch $@

# Without LLMCC the release build, which is made first.
test-clients: $(BUILD)/clients/ok $(BUILD)/ray/ok $(if $(LLMCC_GIVEN),,build)
	modules="$(BUILD)/clients/node_modules"; [ -d "$$modules" ] || modules=""; \
	$(BUILD)/clients/bin/python $(CLIENTS)/run.py --llmcc $(abspath $(LLMCC)) $${modules:+--node-modules $$modules}
	PYTHONPATH=python $(BUILD)/ray/bin/python $(CLIENTS)/ray_replicas.py --llmcc $(abspath $(LLMCC))

$(BUILD)/deploy/ok: deploy/requirements.txt | deps
	python3 -m venv $(BUILD)/deploy
	$(BUILD)/deploy/bin/pip install -q --disable-pip-version-check --requirement deploy/requirements.txt
	touch $@

test-deploy: $(BUILD)/deploy/ok
	$(BUILD)/deploy/bin/python deploy/check.py

# The same features and compiler as `unit`, so that neither builds again what the other has built.
quick: format | llvm
	$(LINTED) cargo test --workspace --locked $(GPU_FEATURES) --lib --bins --test conventions

# Packages to hand out, in build/dist. They are built in a folder of their own, with flags by which they name no folder
# of this machine: the other programs would be built again for other flags.
DIST := $(BUILD)/dist
PACKAGED = RUSTFLAGS="$$(tools/dist/flags.sh)" CARGO_TARGET_DIR=$(CURDIR)/target/dist

wheel: python
	mkdir -p $(DIST)
	$(PACKAGED) $(PY) -m pip wheel -q --disable-pip-version-check --no-deps -w $(DIST) ./python
	tools/dist/try-wheel.sh $(DIST)/llmcc_aot-*.whl

wheel-cuda: wheel llvm
	mkdir -p $(DIST)
	$(PACKAGED) $(PY) -m pip wheel -q --disable-pip-version-check --no-deps -w $(DIST) \
	  --config-settings build-args="--compatibility manylinux_2_34" ./python/cuda
	tools/dist/try-wheel.sh $(DIST)/llmcc_aot-*.whl $(DIST)/llmcc_aot_cuda-*.whl

dist: deps
	$(PACKAGED) cargo build --release --locked -p llmcc -p llmcc-dist
	tools/dist/tarball.sh target/dist/release/llmcc target/dist/release/llmcc-dist

notices: llvm
	cargo run --locked -p llmcc-dist $(GPU_FEATURES) -- notices

# Folders with a config.json each.
CONFIGS := ../shared/data/real_configs

models: ptxas
	$(MAKE) GPU=1 build
	LLMCC=$(CURDIR)/$(LLMCC) LLMCC_PTXAS=$(CURDIR)/$(BUILD)/cuda/ptxas $(PY) tools/models/real.py $(CONFIGS) --docs docs/models.md

gpu-check: python ptxas
	$(MAKE) GPU=1 build
	LLMCC=$(CURDIR)/$(LLMCC) LLMCC_PTXAS=$(CURDIR)/$(BUILD)/cuda/ptxas $(PY) tools/gpu-check/prepare.py $(BUILD)/gpu-check --target sm90

gpu-call: gpu-check
	LLMCC=$(CURDIR)/$(LLMCC) LLMCC_PTXAS=$(CURDIR)/$(BUILD)/cuda/ptxas $(PY) tools/gpu-check/architectures.py $(BUILD)/gpu-architectures
	PYTHON=$(PY) tools/gpu-check/one-call.sh --folder $(BUILD)/gpu-check --architectures $(BUILD)/gpu-architectures --out $(BUILD)/gpu-call.tar

# libFuzzer's instrumentation needs unstable flags of the compiler: a nightly one has them, a stable one with RUSTC_BOOTSTRAP=1.
SECONDS_EACH := 60
# `none`: nothing watches unsafe code.
SANITIZER := address

fuzz: deps
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is needed: cargo install cargo-fuzz --locked"; exit 1; }
	if cargo +nightly --version >/dev/null 2>&1; then nightly=+nightly; else nightly=; export RUSTC_BOOTSTRAP=1; fi; \
	host="$$(rustc -vV | sed -n 's/^host: //p')"; \
	for target in $$(cargo fuzz list); do \
	  echo "== $$target"; mkdir -p $(BUILD)/fuzz/$$target fuzz/corpus/$$target; \
	  words=$(CURDIR)/$(BUILD)/fuzz/$$target.dict; python3 fuzz/dictionary.py $$target > $$words; \
	  cargo $$nightly fuzz run -s $(SANITIZER) --target "$$host" $$target $(CURDIR)/$(BUILD)/fuzz/$$target fuzz/corpus/$$target -- \
	    $$(test -s $$words && echo -dict=$$words) -max_len=16384 -max_total_time=$(SECONDS_EACH) -timeout=10 \
	    -rss_limit_mb=2048 -print_final_stats=1; \
	done

clean:
	rm -rf $(BUILD) target
