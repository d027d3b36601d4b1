#!/usr/bin/env bash
# Runs a tarball's program in a bare Debian 12, which has no compiler, no linker and no Python. Needs root.
#
#   tools/dist/try-tarball.sh TARBALL [SYSTEM]
#
# SYSTEM is the folder of such a system; without one, debootstrap makes one, from the network.
set -euo pipefail
tarball="$(realpath "$1")"
model="$(realpath "$(dirname "$0")/../../examples/tiny-llama/model")"
scratch="$(mktemp -d)"
system="${2:-$scratch/system}"
mounted=""
trap '[ -z "$mounted" ] || umount "$system/proc"; rm -rf "$scratch" "$system/try"' EXIT
if [ ! -d "$system" ]; then
  debootstrap --variant=minbase bookworm "$system" >"$scratch/log" || { tail -n 20 "$scratch/log"; exit 1; }
fi
mkdir "$system/try"
tar -xzf "$tarball" -C "$system/try" --strip-components=1
cp -r "$model" "$system/try/model"
# As on a running system: the program finds itself there.
mount -t proc proc "$system/proc" && mounted=yes
for tool in cc gcc ld as python3; do
  if chroot "$system" /bin/sh -c "command -v $tool"; then echo "the bare system has $tool"; exit 1; fi
done
chroot "$system" /usr/bin/env -i PATH=/usr/bin:/bin /bin/sh -ec '
  cd /try
  cat /etc/debian_version
  bin/llmcc --version
  bin/llmcc compile model --target x86-64 --w4 -o m.so
  bin/llmcc run m.so -p "def read_file(path):" -n 20
  bin/llmcc verify m.so
'
echo "$(basename "$tarball"): fine in a bare Debian 12"
