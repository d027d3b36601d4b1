#!/bin/sh
# Cargo's runner of test programs in `make test`: writes down how Cargo would run one, for all.py.
{
    pwd
    env -0 | base64 -w 0
    echo
    printf '%s\n' "$@"
} >"$(mktemp "$LLMCC_TEST_QUEUE/XXXXXXXX")"
