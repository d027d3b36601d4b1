"""``python -m llmcc``: the program ``llmcc``, with its arguments."""

from __future__ import annotations

import os
import sys

from ._errors import LlmccError
from ._program import compiler


def main() -> None:
    """Becomes the program; its status is that of this process.

    :raises SystemExit: there is no program.
    """
    try:
        program = compiler()
    except LlmccError as error:
        raise SystemExit(f"error: {error}") from None
    try:
        os.execvp(program, [program, *sys.argv[1:]])
    except OSError as error:
        raise SystemExit(f"error: cannot run {program}: {error.strerror}") from None


if __name__ == "__main__":
    main()
