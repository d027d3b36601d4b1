"""Compiling, by the ``llmcc`` program."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Mapping, Union

from ._errors import LlmccError
from ._program import run
from ._keywords import Compiling, spelled_out

if TYPE_CHECKING:
    from ._keywords import Unpack


class Compiled(str):
    """The path of an artifact. ``report`` is the report of ``llmcc compile``: formats, errors of rounding, memory, predicted speed, the root of its hashes."""

    report: str = ""


@spelled_out(Compiling)
def compile(path: Union[str, os.PathLike[str]], out: Union[str, os.PathLike[str]], **params: Unpack[Compiling]) -> Compiled:
    """Compiles the checkpoint at ``path`` to the artifact ``out`` and returns its path, a text with the compiler's ``report``. Its warnings are Python's, too.

    The keywords are the options of ``llmcc compile``: ``w4=True`` becomes ``--w4``, ``max_context=2048`` becomes ``--max-context=2048``; ``None`` and ``False``
    are left out, and a list repeats an option. Uses the program named by the environment variable ``LLMCC``, else the one installed with this package,
    else the ``llmcc`` in ``PATH``.
    """
    done = run(["compile", os.fspath(path), *arguments(dict(params)), "-o", os.fspath(out)])
    if done.returncode != 0:
        # (The advice to read the help of the command line is none here.)
        said = "\n".join(line for line in done.stderr.strip().splitlines() if line != "see `llmcc --help`")
        message = said.removeprefix("error: ") or done.stdout.strip()
        raise LlmccError(message or f"{done.args[0]} ended with status {done.returncode}")
    made = Compiled(os.path.abspath(os.fspath(out)))
    made.report = done.stderr
    for line in done.stderr.splitlines():
        # Warnings have a line of their own, or one in the report.
        label, _, said = line.strip().partition(" ")
        if label in ("warning", "warning:"):
            warnings.warn(said.strip(), stacklevel=2)
    return made


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Command-line form of keyword options."""
    result: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            result.append(flag)
        elif isinstance(value, (list, tuple)):
            result += [f"{flag}={one}" for one in value]
        elif value is not None and value is not False:
            result.append(f"{flag}={value}")
    return result
