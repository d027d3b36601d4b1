"""The program ``llmcc-eval``."""

from __future__ import annotations


def main() -> None:
    """The program of lm-evaluation-harness, with the model ``llmcc``.

    :raises SystemExit: the harness is not installed.
    """
    try:
        from .lm_eval import main as harness
    except ImportError as error:
        raise SystemExit(f"error: {error}") from None
    harness()
