#!/bin/sh
# Installs the compiler and everything to build programs with models against: install.sh LLMCC PREFIX [DESTDIR]
#
#   bin/llmcc                the compiler
#   include/llmcc.h          the C API
#   lib/pkgconfig/llmcc.pc   pkg-config --cflags --libs llmcc
#   lib/cmake/llmcc          find_package(llmcc)
#   lib/llmcc                runtimes of other architectures, if `make runtimes` has built them
#   share/llmcc/rust         the crate llmcc-model, for a path dependency
#   share/doc/llmcc          licence and changes
#
# All files find each other from where they are: the installed folder may be moved.
set -eu
llmcc=$1 prefix=$2 to=${3:-}$2
here=$(cd "$(dirname "$0")/.." && pwd)

case $prefix in
  /*) ;;
  *) echo "PREFIX is $prefix; give an absolute path" >&2; exit 2 ;;
esac
[ -x "$llmcc" ] || { echo "$llmcc is missing; run \`make build\` first" >&2; exit 2; }
version=$(sed -n 's/^version = "\([0-9.]*\).*/\1/p' "$here/Cargo.toml" | head -n 1)
[ -n "$version" ] || { echo "$here/Cargo.toml has no version" >&2; exit 1; }

# put MODE FOLDER FILE...: FILE... into FOLDER of the prefix.
put() {
  mode=$1 folder=$2; shift 2
  install -d "$to/$folder"
  install -m "$mode" "$@" "$to/$folder"
}

# filled FOLDER FILE.in: FILE with the version, into FOLDER of the prefix.
filled() {
  install -d "$to/$1"
  sed "s/@VERSION@/$version/" "$2" > "$to/$1/$(basename "$2" .in)"
  chmod 644 "$to/$1/$(basename "$2" .in)"
}

put 755 bin "$llmcc"
put 644 include "$here/include/llmcc.h"
for runtime in "$here"/build/runtimes/llmcc-rt-*.so; do
  [ ! -f "$runtime" ] || put 644 lib/llmcc "$runtime"
done
put 644 lib/cmake/llmcc "$here/bindings/cmake/llmccConfig.cmake"
filled lib/cmake/llmcc "$here/bindings/cmake/llmccConfigVersion.cmake.in"
filled lib/pkgconfig "$here/bindings/pkgconfig/llmcc.pc.in"
put 644 share/doc/llmcc "$here/LICENSE" "$here/CHANGELOG.md"

# The crate as cargo packs it: without the workspace, with its links as files.
if command -v cargo >/dev/null; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$here" && cargo package -q -p llmcc-model --no-verify --offline --allow-dirty --target-dir "$work")
  rm -rf "$to/share/llmcc/rust"
  install -d "$to/share/llmcc/rust"
  tar -xf "$work"/package/llmcc-model-*.crate -C "$to/share/llmcc/rust" --strip-components=1 --no-same-owner
else
  echo "cargo is not on the search path: the crate llmcc-model is not installed" >&2
fi
echo "installed llmcc $version in $to"
