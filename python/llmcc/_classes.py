"""Scores of classes, with their names."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from ._pairs import ACTIVATIONS, activated


class Class(NamedTuple):
    """A class of :meth:`llmcc.Model.classify`."""

    #: Its name, or its number where the model names none.
    name: str
    #: Its score.
    score: float


def best_first(names: Sequence[str], scores: Sequence[float], activation: str | None) -> list[Class]:
    """The classes by their scores; equal ones in their order."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, not {activation!r}")
    named = [names[i] if i < len(names) else str(i) for i in range(len(scores))]
    found = [Class(name, score) for name, score in zip(named, activated(list(scores), activation))]
    return sorted(found, key=lambda c: -c.score)
