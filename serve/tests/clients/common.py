"""The server under test and what all clients ask it for. `run.py` sets the variables of the environment."""

from __future__ import annotations

import os

#: The server's address, without a path, and its model.
URL = os.environ["LLMCC_URL"]
MODEL = os.environ["LLMCC_MODEL"]
KEY = "none"

#: A schema whose texts are short, whatever a model without knowledge writes.
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
ASK = "What is the weather in Bern?"


def is_place(value: dict) -> bool:
    """Whether a value keeps to PLACE. (Some clients drop `additionalProperties`, and so it may have others.)"""
    return value["city"] in ("Bern", "Rome") and 1 <= value["days"] <= 9


def refused(call, error: type[Exception]) -> Exception:
    """The error of a call that must fail with one of this type."""
    try:
        call()
    except error as e:
        return e
    raise AssertionError(f"no {error.__name__}")
