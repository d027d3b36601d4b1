"""Keywords that several functions share, with their types."""

from __future__ import annotations

import functools
import inspect
import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, Literal, Mapping, Optional, Sequence, TypedDict, TypeVar, Union, get_type_hints

from ._corpus import Corpus
from ._text import Text

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
    #: Where guesses of next tokens come from, which change no token; by default from the artifact's draft heads, if it has any.
    draft: Union[None, bool, Literal["none", "heads", "lookup", "jacobi", "lookahead"], Text, Corpus]
    #: Most tokens that are guessed for a step.
    guesses: Optional[int]
    #: A token that ends texts is not chosen before so many tokens.
    min_tokens: Optional[int]
    #: Taken from the logits of tokens that were generated.
    presence_penalty: Optional[float]
    #: Taken from them for each time that they were generated.
    frequency_penalty: Optional[float]
    #: Texts, or lists of tokens, that the text does not have.
    bad_words: Optional[Iterable[Union[str, Sequence[int]]]]
    #: The text is JSON of this schema: a mapping, or JSON.
    json_schema: Union[None, str, Mapping[str, Any]]
    #: The whole text matches this regular expression.
    regex: Optional[str]
    #: The text is one of this context-free grammar, as Lark writes it.
    grammar: Optional[str]
    #: The text is one of these.
    choices: Optional[Iterable[str]]
    #: Images of the prompt, in the order of their markers: paths, bytes of files, Pillow images, or arrays ``[height, width, 3]`` of uint8.
    images: Optional[Sequence[Any]]


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
    #: How the rows of a text become one; by default as the model says.
    pooling: Optional[Literal["mean", "first", "last", "max", "root", "weighted"]]
    #: Types of the tokens, for texts given as tokens; by default as the tokenizer gives a text alone, mostly 0.
    types: Union[None, Sequence[int], Sequence[Sequence[int]]]


class Compiling(TypedDict, total=False):
    """Options of ``llmcc compile``; ``None`` and ``False`` leave an option out."""

    #: Machines to compile for: ``"native"``, or names of ``llmcc targets`` with commas between them; by default every x86-64 processor.
    target: Optional[str]
    #: 4-bit weights, symmetric.
    w4: bool
    #: 4-bit weights, asymmetric.
    w4a: bool
    #: 8-bit weights.
    w8: bool
    #: 8-bit floating-point weights.
    fp8: bool
    #: Weights of any other format, by its name.
    format: Optional[str]
    #: Matrices of a quantized checkpoint that keep their own bits: all, or patterns of names and formats with commas between them.
    keep_quantized: Union[None, bool, str]
    #: Unquantized weights of this type.
    dtype: Optional[Literal["f32", "f16", "bf16"]]
    #: The fastest mixture of formats whose root mean square relative error is at most this.
    error_budget: Optional[float]
    #: Texts like the model's own use, by which rounding errors are weighed: ``"builtin"``, files, folders, ``"FILE=WEIGHT"``.
    calib: Union[None, str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]]]
    #: Tokens of these texts to use.
    calib_tokens: Optional[int]
    #: Chooses which documents are used, and which are kept out to check the artifact by.
    calib_seed: Optional[int]
    #: Keep the result of ``calib`` in a file, which ``calib`` takes, too.
    save_calib: Union[None, str, os.PathLike[str]]
    #: How weights become codes; by default by least squares.
    method: Optional[Literal["nearest", "least-squares", "clip", "gptq", "awq", "awq+clip", "awq+gptq", "smoothquant"]]
    #: Make weights of the layers' matrices zero before they are rounded.
    prune: Optional[Literal["magnitude", "wanda", "sparsegpt", "rose"]]
    #: The part that becomes zero: ``"50%"``, or ``"2:4"``, two of each four adjacent columns.
    sparsity: Optional[str]
    #: Bounds that the artifact keeps as measured on text: ``"kl=0.01"``, ``"ppl=+1%"``, ``"bytes=700M"``, ``"memory=1G@8192"``, ``"tokens/s=60"``.
    budget: Union[None, str, Sequence[str]]
    #: Files with text of the kind that the model is for, to measure on; by default a built-in text.
    budget_text: Union[None, str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]]]
    #: Columns that share a scale, with ``w4``, ``w4a`` and ``w8``; by default 32.
    group: Optional[int]
    #: Activations that enter quantized matrix products.
    act: Optional[Literal["f32", "int8", "fp8"]]
    #: Type of cached keys and values.
    kv: Optional[Literal["f32", "f16", "bf16", "int8", "int4", "auto"]]
    #: Longest sequence, in tokens; by default the model's.
    max_context: Optional[int]
    #: Keep a part of each sequence in the cache, as in ``"sinks:first=4,window=1020"``; a list has policies of several layers.
    kv_policy: Union[None, str, Sequence[str]]
    #: Adapters of PEFT that are merged: folders, ``"FOLDER=SCALE"``.
    lora: Union[None, str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]]]
    #: Room for so many adapters that are loaded while the model runs.
    lora_slots: Optional[int]
    #: Their largest rank; by default 16.
    lora_rank: Optional[int]
    #: Number format of their factors.
    lora_dtype: Optional[Literal["f32", "bf16"]]
    #: Modules that they may change, by the ends of their names, with commas between them.
    lora_targets: Optional[str]
    #: The checkpoint that a folder with an adapter only belongs to.
    base: Union[None, str, os.PathLike[str]]
    #: Sign the artifact with a private key of Ed25519 in PEM: ``OUT.sig``.
    sign: Union[None, str, os.PathLike[str]]
    #: Embeddings of a model that writes text.
    embed: bool
    #: The model's draft heads beside it, for guesses of next tokens; a number takes the first so many.
    draft_head: Union[None, bool, int]
    #: A published draft (EAGLE, Medusa) beside the model, for guesses of next tokens.
    draft: Union[None, str, os.PathLike[str]]
    #: Leave the hidden states of tokens to the caller, for draft heads.
    hidden_states: bool
    #: Make embeddings beside text.
    also_embed: bool
    #: Compile the part of the model that sees images, too.
    with_image: bool
    #: Show the inputs of products, for :meth:`Model.tap`.
    tap: bool
    #: Name by which programs that are linked with the artifact look for it; ``"auto"`` makes one of the file's name and the ABI.
    soname: Optional[str]
    #: Whether weights are in the artifact or beside it.
    weights: Optional[Literal["embed", "external", "absent"]]
    #: Name the implementation of each kernel in the report, and the one that came second.
    explain: bool
    #: Accept tensors that the model does not use.
    ignore_unused: bool
    #: On GPUs, give a sequence the same bits in any batch and any pieces, as CPUs do: slower.
    invariant: bool
    #: Refuse kernels that take a generic slow path.
    deny_fallback: bool
    #: Do not run the artifact in the end.
    no_golden: bool


#: Defaults that are not ``None``.
_DEFAULTS = {"stop": (), "stop_tokens": ()}


def spelled_out(kind: Any) -> Callable[[F], F]:
    """Shows the keywords of ``kind`` in the signature of a function that takes them as ``**params: Unpack[kind]``: for ``help``, completion and the like. Unknown keywords still
    reach the function, which knows how to correct them."""

    added = _parameters(kind)

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        known = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        kept = {"return", *(p.name for p in known)}
        function.__signature__ = own.replace(parameters=[*known, *added])  # type: ignore[attr-defined]
        own_types = {name: hint for name, hint in function.__annotations__.items() if name in kept}
        function.__annotations__ = {**own_types, **{p.name: p.annotation for p in added}}
        return function

    return decorate


@functools.lru_cache(maxsize=None)
def _parameters(kind: Any) -> tuple[inspect.Parameter, ...]:
    """The keywords of ``kind``, ``max_tokens`` first."""
    hints = sorted(get_type_hints(kind).items(), key=lambda hint: hint[0] != "max_tokens")
    defaults = {name: False if hint is bool else _DEFAULTS.get(name) for name, hint in hints}
    return tuple(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint) for name, hint in hints)
