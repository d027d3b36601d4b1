"""Where the compiler is, the program ``llmcc``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from typing import Optional

from ._errors import LlmccError, Status


def compiler() -> str:
    """The path of the program ``llmcc``: the one that the environment variable ``LLMCC`` names, else the one that was installed with this package, else the
    first in ``PATH``."""
    program = os.environ.get("LLMCC") or _installed() or shutil.which("llmcc")
    if not program:
        message = "the program llmcc is neither installed with this package nor in PATH; `pip install llmcc-aot` brings it, or set LLMCC to its path"
        raise LlmccError(message, Status.SYSTEM)
    return program


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs the program with these arguments, and returns what it wrote and its status.

    :raises LlmccError: it is missing, or cannot be started.
    """
    program = compiler()
    try:
        return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    except OSError as error:
        raise LlmccError(f"cannot run {program}: {error}", Status.SYSTEM) from None


def _installed() -> Optional[str]:
    """The program among those of this Python (of its virtual environment, or of the user), whether or not they are in ``PATH``."""
    folders = [sysconfig.get_path("scripts")]
    user = sysconfig.get_preferred_scheme("user") if hasattr(sysconfig, "get_preferred_scheme") else "posix_user"
    if user in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", user))
    for folder in folders:
        program = os.path.join(folder, "llmcc")
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    return None
