"""Signatures of artifacts, checked by the ``llmcc`` program before anything of a file is executed."""

from __future__ import annotations

import json
import subprocess

from ._errors import LlmccError, Status
from ._program import compiler


def check(path: str, key: str) -> None:
    """Compares all bytes of an artifact with its signature, ``path.sig``, by a public key in PEM.

    :raises LlmccError: there is no signature, it is wrong or of other bytes, or the program is missing.
    """
    command = [compiler(), "verify", path, "--key", key, "--no-run", "--json"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    except OSError as error:
        raise LlmccError(f"cannot run {command[0]}: {error}", Status.SYSTEM) from None
    if done.returncode != 0:
        try:
            message = json.loads(done.stdout)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = done.stderr.strip() or f"{command[0]} ended with status {done.returncode}"
        raise LlmccError(message, Status.ARTIFACT)
