#!/usr/bin/env bash
# Runs a tarball's program in a bare Debian 12, which has no compiler, no linker and no Python. Needs debootstrap, root and the network.
#
#   tools/dist/try-tarball.sh TARBALL [MIRROR]
set -euo pipefail
tarball="$(realpath "$1")"
model="$(realpath "$(dirname "$0")/../../examples/tiny-llama/model")"
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase bookworm "$root" ${2:+"$2"} >"$root.log" || { tail -n 20 "$root.log"; exit 1; }
rm -f "$root.log"
mkdir "$root/try"
tar -xzf "$tarball" -C "$root/try" --strip-components=1
cp -r "$model" "$root/try/model"
for tool in cc gcc ld as python3; do
  if chroot "$root" /bin/sh -c "command -v $tool"; then echo "the bare system has $tool"; exit 1; fi
done
chroot "$root" /bin/sh -ec '
  cd /try
  bin/llmcc --version
  bin/llmcc compile model --target x86-64 --w4 -o m.so
  bin/llmcc run m.so -p "def read_file(path):" -n 20
  bin/llmcc verify m.so
'
echo "$(basename "$tarball"): fine in a bare Debian 12"
