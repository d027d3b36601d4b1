#!/bin/sh
# Cargo's runner of test programs in `make test`: each test's time stands behind its name, for slowest.py.
# The option is unstable; the variable allows it to the test harness, which reads it when it runs.
program=$1
shift
exec env RUSTC_BOOTSTRAP=1 "$program" "$@" -Z unstable-options --report-time
