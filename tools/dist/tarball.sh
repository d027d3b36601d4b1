#!/usr/bin/env bash
# Writes build/dist/llmcc-VERSION-x86_64-linux-gnu.tar.gz: the program, header, pages, completions, examples, licences.
# The same sources make the same bytes: names are sorted, owners are 0, times are that of the commit (or SOURCE_DATE_EPOCH).
# An archive of Git has the time of its commit at every file.
#
#   tools/dist/tarball.sh LLMCC LLMCC-DIST
set -euo pipefail
cd "$(dirname "$0")/../.."
llmcc="$(realpath "$1")" dist="$(realpath "$2")"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
name="llmcc-$version-x86_64-linux-gnu"
when="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}"
export LC_ALL=C

root="build/dist/$name"
rm -rf "$root"
# Program, header, configurations of pkg-config and CMake, bindings, licence, changes: as `make install` places them.
tools/install.sh "$llmcc" / "$PWD/$root"
strip "$root/bin/llmcc"
"$dist" check "$root/bin/llmcc"
"$dist" runtimes
"$dist" pages "$root/share"
"$dist" sbom >"$root/share/doc/llmcc/sbom.cdx.json"
"$root/bin/llmcc" licenses >"$root/share/doc/llmcc/THIRD-PARTY.txt"
# Pages and examples, under the names by which pages refer to them.
pages="README.md ARCHITECTURE.md docs/*.md docs/design/*.md"
examples="examples/c/*.c examples/cmake/*.* examples/python/*.py"
for file in $pages $examples; do
  install -D -m 644 "$file" "$root/share/doc/llmcc/$file"
done
find "$root" -type d -exec chmod 755 {} + -o -type f -exec chmod u=rwX,go=rX {} +
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" --format=gnu -C build/dist -cf - "$name" |
  gzip -9n >"build/dist/$name.tar.gz"
(cd build/dist && sha256sum "$name.tar.gz")
