#!/bin/sh
# Packs everything that a machine with a GPU needs to check and measure llmcc in one call, says its
# size, and prints the command to run there.
#
#   tools/gpu-check/one-call.sh [--seconds 480] [--mib 64] [--results FOLDER] [--at /dev/shm] [--folder build/gpu-check]
#                               [--architectures build/gpu-architectures] [--out build/gpu-call.tar]
#
# `make gpu-call` makes the folders before. There, a driver, Python 3.9 and NumPy are needed; with PyTorch, `ncu` and
# `compute-sanitizer` there is more to see. Order and seconds: plan.py.
set -eu
exec "${PYTHON:-python3}" "$(dirname "$0")/pack.py" "$@"
