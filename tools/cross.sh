#!/bin/sh
# What builds and runs programs for AArch64 on x86-64 Debian 12, or the other way round: cross.sh FOLDER
#
# A C compiler and library for it, an emulator of its processors, and Rust's standard library: by rustup, or, where
# rustup has none, with Debian's own Rust. FOLDER/env.sh sets what Cargo and `llmcc-runtimes` need to know.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
case $(uname -m) in
  x86_64) machine=aarch64 debian=arm64 compiler=aarch64-linux-gnu ;;
  aarch64) machine=x86_64 debian=amd64 compiler=x86-64-linux-gnu ;;
  *) echo "no runtimes for other architectures are built on $(uname -m)" >&2; exit 2 ;;
esac
triple=$machine-unknown-linux-gnu

"$tools/packages.sh" "gcc-$compiler" "libc6-dev-$debian-cross" qemu-user

# The same version as the other crates are built with, if it can be had.
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ]; then
  command -v rustup >/dev/null && rustup target add "$triple" || true
fi
sysroot=
if [ -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ]; then
  rustc=$(rustup which rustc 2>/dev/null || command -v rustc)
else
  "$tools/packages.sh" rustc-web
  options="-oAPT::Architecture=$debian -oAPT::Architectures=$debian -oDir::State::Lists=$folder/lists"
  mkdir -p "$folder/lists/partial"
  # shellcheck disable=SC2086 # several options
  (cd "$folder" && apt-get $options update -q && apt-get $options download libstd-rust-web-dev)
  dpkg -x "$folder"/libstd-rust-web-dev_*_"$debian".deb "$folder/std"
  rustc=/usr/bin/rustc sysroot=$folder/std/usr
fi

upper=$(echo "$triple" | tr a-z- A-Z_)
cat > "$folder/env.sh" <<END
export LLMCC_CROSS_RUSTC='$rustc' LLMCC_CROSS_SYSROOT='$sysroot' LLMCC_CROSS_MACHINE=$machine LLMCC_CROSS_TARGET=$triple
export LLMCC_CROSS_CC=$machine-linux-gnu-gcc
export CARGO_TARGET_${upper}_LINKER=$machine-linux-gnu-gcc
export CARGO_TARGET_${upper}_RUSTFLAGS='${sysroot:+--sysroot=$sysroot}'
export CARGO_TARGET_${upper}_RUNNER='qemu-$machine -L /usr/$machine-linux-gnu'
END
touch "$folder/ok"
