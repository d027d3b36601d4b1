"""Scores of classes, with their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional, Sequence

from ._errors import LlmccError, Status
from ._pairs import Activation, activated, checked

if TYPE_CHECKING:
    from ._handle import Opened

#: Activations of classifiers by their ``problem_type``, as in the text classification of Transformers.
_OF_PROBLEMS: dict[str, Activation] = {"single_label_classification": "softmax", "multi_label_classification": "sigmoid", "regression": None}


class Class(NamedTuple):
    """A class of :meth:`llmcc.Model.classify`."""

    #: Its name, or its number where the model names none.
    name: str
    #: Its score: a probability, or as the activation leaves it.
    score: float


def activation_of(model: Opened, activation: Activation) -> Activation:
    """The function of the scores of a classifier.

    :raises ValueError: the name is not known.
    :raises LlmccError: the model is to say, and says something unknown.
    """
    if checked(activation) != "model":
        return activation
    problem = model.problem_type
    columns: int = model._info["embed_columns"]
    if problem is None or (problem == "single_label_classification" and columns == 1):
        return "sigmoid" if columns == 1 else "softmax"
    if problem not in _OF_PROBLEMS:
        message = f"the model's problem_type is {problem!r}; give activation= (softmax, sigmoid or None) yourself"
        raise LlmccError(message, Status.UNSUPPORTED)
    return _OF_PROBLEMS[problem]


def best_first(names: Sequence[str], scores: Sequence[float], activation: Optional[str]) -> list[Class]:
    """The classes by their scores; equal ones in their order."""
    named = [names[i] if i < len(names) else str(i) for i in range(len(scores))]
    found = [Class(name, score) for name, score in zip(named, activated(list(scores), activation))]
    return sorted(found, key=lambda c: -c.score)
