#!/usr/bin/env bash
# Tries a wheel of llmcc-aot as a user would: in a new virtual environment, in an empty folder, without the repository.
#
#   tools/dist/try-wheel.sh WHEEL [CUDA-WHEEL]
#
# With the wheel of llmcc-aot-cuda, also for a GPU target. Nothing is downloaded.
set -euo pipefail
wheel="$(realpath "$1")"
cuda="${2:+$(realpath "$2")}"
root="$(realpath "$(dirname "$0")/../..")"
model="$root/examples/tiny-llama/model"
prompt="def read_file(path):"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
# Folders of users have spaces.
folder="$scratch/a folder"
mkdir "$folder"
cp -r "$model" "$folder/model"
cd "$folder"
# Nothing of the caller's Python, of its llmcc, or of the programs in its PATH.
unset PYTHONPATH LLMCC LLMCC_CUDA_PROGRAM
python3 -m venv venv
export PATH="$folder/venv/bin:/usr/bin:/bin"
pip install --quiet --disable-pip-version-check --no-index "$wheel"

for private in "$root/" "${CARGO_HOME:-$HOME/.cargo}/"; do
  if grep -qaF "$private" venv/bin/llmcc; then echo "the program names $private: build it by make, or with the RUSTFLAGS of tools/dist/flags.sh"; exit 1; fi
done
llmcc --version
test "$(command -v llmcc)" = "$folder/venv/bin/llmcc"
test "$(python -m llmcc --version)" = "$(llmcc --version)"
llmcc compile model --target x86-64 --w4 -q -o x.so
llmcc run x.so -p "$prompt" -n 20
python -c 'import llmcc, sys; text = llmcc.load("x.so").generate(sys.argv[1], max_tokens=20); print(text); assert text' "$prompt"
echo "== compiled from Python; the compiler is not in PATH"
PATH=/usr/bin:/bin venv/bin/python - <<'PYTHON'
import llmcc

made = llmcc.compile("model", "y.so", target="x86-64", w4=True)
assert "y.so" in made.report, made.report
assert open("x.so", "rb").read() == open("y.so", "rb").read(), "the same input and options make the same bytes"
print(llmcc.__version__, made)
PYTHON
llmcc inspect --licenses x.so | head -n 3
llmcc licenses | head -n 1
echo "== without LLVM, a GPU target names the package that has it"
said="$(llmcc compile model --target sm90 -o g.so 2>&1)" && { echo "compiled for sm90 without LLVM"; exit 1; }
grep -F "pip install llmcc-aot-cuda" <<<"$said"
if [ -n "$cuda" ]; then
  pip install --quiet --disable-pip-version-check --no-index "$cuda"
  llmcc-cuda --version
  llmcc compile model --target sm90 --w4 -q -o g.so
  llmcc inspect g.so | grep "version     sm90"
  echo "$(basename "$cuda"): fine, $(du -h "$cuda" | cut -f1); the program has $(du -h venv/bin/llmcc-cuda | cut -f1)"
fi
# Its dependencies are an extra, so here it can only say what it needs.
said="$(llmcc-eval --help 2>&1)" || grep -F "error: llmcc.lm_eval needs lm-evaluation-harness" <<<"$said"
echo "$(basename "$wheel"): fine, $(du -h "$wheel" | cut -f1)"
