#!/bin/sh
# Cargo's `rustdoc` in `make test`: runs the documentation tests of a crate, and then checks its documentation, with
# warnings denied. `cargo doc` finds the same, but needs metadata of all dependencies beside the builds of the tests.
set -e
rustdoc "$@"
testing='' value=''
for arg; do
  shift
  if [ -n "$value" ]; then
    value=''
    continue
  fi
  case $arg in
    --test) testing=yes ;;
    --test-run-directory | --test-args | --test-runtool | --test-runtool-arg) value=next ;;
    --nocapture | --no-run) ;;
    *) set -- "$@" "$arg" ;;
  esac
done
# The option is unstable; the variable allows it.
[ -z "$testing" ] || RUSTC_BOOTSTRAP=1 exec rustdoc "$@" -D warnings -Z unstable-options --check
