"""Signatures of artifacts, checked by the ``llmcc`` program before anything of a file is executed."""

from __future__ import annotations

import json

from ._errors import LlmccError, Status
from ._program import run


def check(path: str, key: str) -> None:
    """Compares all bytes of an artifact with its signature, ``path.sig``, by a public key in PEM.

    :raises LlmccError: there is no signature, it is wrong or of other bytes, or the program is missing.
    """
    done = run(["verify", path, "--key", key, "--no-run", "--json"])
    if done.returncode != 0:
        try:
            message = json.loads(done.stdout)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = done.stderr.strip() or f"{done.args[0]} ended with status {done.returncode}"
        raise LlmccError(message, Status.ARTIFACT)
