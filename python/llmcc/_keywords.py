"""Keywords that several functions share, with their types."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Optional, Sequence, TypedDict, TypeVar, Union, get_type_hints

if TYPE_CHECKING:
    # (Type checkers have it; at run time nobody asks for it.)
    from typing_extensions import Unpack as Unpack

F = TypeVar("F", bound=Callable[..., Any])


class Choosing(TypedDict, total=False):
    """How a token is chosen from its logits."""

    #: 0 always takes the most probable token.
    temperature: Optional[float]
    #: Keep this many of the most probable tokens.
    top_k: Optional[int]
    #: Keep the fewest most probable tokens with this sum of probabilities, at least one; 1: all.
    top_p: Optional[float]
    #: Drop tokens less probable than this fraction of the most probable one.
    min_p: Optional[float]
    #: A positive number; above 1 it makes tokens seen before less probable.
    repetition_penalty: Optional[float]
    #: How many of the last tokens count as seen; by default all.
    repetition_window: Optional[int]
    #: Equal seeds give equal texts; by default 0.
    seed: Optional[int]
    #: Numbers that are added to the logits of tokens; ``-math.inf`` bans a token.
    logit_bias: Optional[Mapping[int, float]]


class Generating(Choosing, total=False):
    """Parameters of a generation."""

    #: Most tokens to generate; by default the model's limit.
    max_tokens: Optional[int]
    #: Texts that end the generation and are not part of it.
    stop: Union[None, str, Iterable[str]]
    #: Tokens that end the generation, besides the model's own.
    stop_tokens: Optional[Iterable[int]]
    #: Go on after end-of-sequence tokens.
    ignore_eos: bool
    #: Keep special tokens in the text.
    show_special: bool
    #: Give the log-probability of each token, with so many of the most probable tokens.
    logprobs: Optional[int]
    #: Always take the most probable token, and ignore the model's own settings.
    greedy: bool
    #: The number of an adapter that ``load_adapter`` returned; 0: none.
    adapter: Optional[int]


class GeneratingMany(Generating, total=False):
    """Parameters of the generations of a list of prompts."""

    #: A mapping for each prompt with its own parameters, which take the place of the common ones.
    each: Optional[Iterable[Mapping[str, object]]]
    #: How many prompts generate at once; by default 64, on a GPU 256.
    max_batch: Optional[int]
    #: The same by the name that it has in other functions.
    batch_size: Optional[int]
    #: Show how many prompts are done.
    progress: bool


class Judging(TypedDict, total=False):
    """Parameters of functions that judge texts in batches."""

    #: How many texts are given to the model at once; by default all.
    batch_size: Optional[int]
    #: Show how many texts are done.
    progress: bool


class Embedding(Judging, total=False):
    """Parameters of embeddings."""

    #: Name of the model's prompt that is put before each text; by default the model's, if it has one.
    prompt_name: Optional[str]
    #: A text that is put before each text, in place of a prompt of the model.
    prompt: Optional[str]
    #: Whether rows have length 1; by default as the model says.
    normalize: Optional[bool]
    #: Types of the tokens, for texts given as tokens; by default all are 0.
    types: Optional[Sequence[Any]]


#: Defaults that are not ``None``.
_DEFAULTS = {"stop": (), "stop_tokens": (), "ignore_eos": False, "show_special": False, "greedy": False, "progress": False}


def spelled_out(kind: Any) -> Callable[[F], F]:
    """Shows the keywords of ``kind`` in the signature of a function that takes them as ``**params: Unpack[kind]``: for ``help``, completion and the like. Unknown keywords still
    reach the function, which knows how to correct them."""

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        hints = dict(sorted(get_type_hints(kind).items(), key=lambda hint: hint[0] != "max_tokens"))
        known = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=hint) for name, hint in hints.items()]
        function.__signature__ = own.replace(parameters=known + added)  # type: ignore[attr-defined]
        function.__annotations__ = {**{name: kept for name, kept in function.__annotations__.items() if name != "params"}, **hints}
        return function

    return decorate
