#!/bin/sh
# Installs the packages of Debian that are missing, as root or through sudo: packages.sh PACKAGE...
set -eu
missing=
for package; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing:$missing"
$sudo apt-get update -q
# shellcheck disable=SC2086 # several names
$sudo apt-get install -y -q --no-install-recommends $missing
