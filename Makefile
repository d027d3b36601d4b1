# make demo   builds everything, compiles the example model and generates text from the CLI, from C and from Python
# make test   everything the tests need, then all tests
# Fresh Debian 12 with Rust 1.95: both work as they are; what is missing is installed (apt-get, as root or through sudo).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

BUILD := build
VENV := $(BUILD)/venv
PY := $(VENV)/bin/python
LLMCC := target/release/llmcc
MODEL := examples/tiny-llama/model
DEMO := $(BUILD)/demo
PROMPT := def read_file(path):

.PHONY: demo test build deps python lint unit clean

build: deps
	cargo build --release --locked

demo: build python
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

# System packages: a C compiler (cargo links with it; the C examples need it) and Python with venv.
deps:
	@missing=""; \
	command -v cc >/dev/null || missing="$$missing build-essential"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	if [ -n "$$missing" ]; then \
	  sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  echo "installing:$$missing"; \
	  $$sudo apt-get update -q && $$sudo apt-get install -y -q --no-install-recommends $$missing; \
	fi
	@command -v cargo >/dev/null || { echo "Rust 1.95 or later is needed: https://rustup.rs"; exit 1; }

$(VENV)/ok: python/pyproject.toml $(wildcard python/llmcc/*.py) | deps
	python3 -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check numpy==2.2.6 pytest==8.4.2 ./python
	touch $@

python: $(VENV)/ok

lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

unit: python
	LLMCC_PYTHON=$(CURDIR)/$(PY) cargo test --workspace --locked

test: deps lint unit

clean:
	rm -rf $(BUILD) target
