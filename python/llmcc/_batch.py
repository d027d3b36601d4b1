"""Generations: one, and many at once by continuous batching."""

from __future__ import annotations

import ctypes as c
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Sequence

from . import _ffi as ffi, _guesses
from ._errors import Unique
from ._interrupt import checkpoint
from ._params import OF_LISTS, GenParams, batch_of, positive
from ._pieces import Completion, Piece, finish_of, piece_of
from ._progress import Progress

if TYPE_CHECKING:
    from ._text import Prompt, Text

#: Sequences that generate at once, unless told otherwise: on processors and on GPUs, which read their weights once for all.
MAX_BATCH = 64
MAX_GPU_BATCH = 256

#: Steps of fewer tokens take too little time for a thread of their own.
FEW = 16


class Generation(Unique, Iterator[Piece]):
    """Tokens of a generation; frees it at the end, on an error, and when it is no longer wanted."""

    _remedy = "start another one with the same parameters, or collect its pieces in a list"

    def __init__(self, lib: ffi.Library, gen: c.c_void_p, logprobs: bool, model: Any = None, pending: int = 0) -> None:
        self._lib, self._gen, self._logprobs = lib, gen, logprobs
        # The prompt of the first step, which may be interrupted.
        self._model, self._pending = model, pending
        # Held while the library works on it, so that nobody frees it meanwhile.
        self._lock = threading.RLock()

    def __next__(self) -> Piece:
        with self._lock:
            if not self._gen:
                raise StopIteration
            piece = ffi.Piece()
            gen, pending = self._gen, self._pending
            self._pending = 0
            try:
                self._lib.interruptible(self._model, lambda: self._lib.gen_next(gen, c.byref(piece)), pending >= FEW)
                result = piece_of(piece, self._logprobs) if piece.token >= 0 else None
            except BaseException:
                self.close()
                raise
            if finish_of(piece) is not None:
                self.close()
        if result is None:
            raise StopIteration
        return result

    def close(self) -> None:
        with self._lock:
            gen, self._gen = self._gen, c.c_void_p()
            if gen:
                free(self._lib, gen)

    def __del__(self) -> None:
        self.close()


class Step:
    """A token for each of several generations. Its arguments are kept for the next one: the GPU waits while they are made anew."""

    def __init__(self) -> None:
        self._gens: list[c.c_void_p] = []
        self._handles: Any = None
        self._pieces: Any = None

    def run(self, lib: ffi.Library, model: Any, gens: list[c.c_void_p]) -> Any:
        """The pieces as C reports them, which last until the next step."""
        if gens != self._gens:
            self._gens = gens
            self._handles = (c.c_void_p * len(gens))(*(gen.value for gen in gens))
            self._pieces = (ffi.Piece * len(gens))()
            for piece in self._pieces:
                piece.size = c.sizeof(ffi.Piece)
        lib.interruptible(model, lambda: lib.gen_next_batch(self._handles, len(gens), self._pieces))
        return self._pieces


class BatchGeneration(Unique, Iterator["tuple[int, Piece]"]):
    """Tokens of many generations as they come, with the index of their prompt. Up to ``most`` go on at once; where one ends, the next begins."""

    _remedy = Generation._remedy

    def __init__(self, lib: ffi.Library, gens: Sequence[c.c_void_p], logprobs: Sequence[bool], most: int, model: Any = None) -> None:
        self._lib, self._logprobs, self._most, self._model = lib, logprobs, most, model
        self._gens: dict[int, c.c_void_p] = dict(enumerate(gens))
        self._ready: deque[tuple[int, Piece]] = deque()
        #: How good guesses were, by the index of a prompt whose generation has ended: see :func:`guessed`.
        self.guessed: dict[int, tuple[int, int, int]] = {}
        self._of_step = Step()
        # As that of a single generation.
        self._lock = threading.RLock()

    def __next__(self) -> tuple[int, Piece]:
        with self._lock:
            while not self._ready:
                if not self._gens:
                    raise StopIteration
                try:
                    self._step()
                except BaseException:
                    self.close()
                    raise
            return self._ready.popleft()

    def _step(self) -> None:
        # In order of their prompts: the first ones are served first.
        active = list(islice(self._gens, self._most))
        pieces = self._of_step.run(self._lib, self._model, [self._gens[index] for index in active])
        # Pieces point to memory that lasts as long as their generations.
        self._ready.extend((index, piece_of(piece, self._logprobs[index])) for index, piece in zip(active, pieces) if piece.token >= 0)
        for index, piece in zip(active, pieces):
            if piece.finish:
                gen = self._gens.pop(index)
                self.guessed[index] = guessed(self._lib, gen)
                free(self._lib, gen)

    def handed_over(self) -> tuple[ffi.Library, list[c.c_void_p], Sequence[bool], int]:
        """The generations, for the caller to go on with and to free: the library, their handles, whether they have log-probabilities, and how many go on at once."""
        with self._lock:
            gens, self._gens = self._gens, {}
        return self._lib, list(gens.values()), self._logprobs, self._most

    def close(self) -> None:
        with self._lock:
            gens, self._gens = self._gens, {}
            for gen in gens.values():
                free(self._lib, gen)

    def __del__(self) -> None:
        self.close()


class Counted(Iterator["tuple[int, Piece]"]):
    """Pieces of many generations, with the count of those that have ended."""

    def __init__(self, pieces: BatchGeneration, progress: Progress) -> None:
        self._pieces, self._progress = pieces, progress

    def __next__(self) -> tuple[int, Piece]:
        try:
            index, piece = next(self._pieces)
        except BaseException:
            self._progress.close()
            raise
        if piece.finish is not None:
            self._progress.update()
        return index, piece

    def close(self) -> None:
        """Ends the generations."""
        self._pieces.close()
        self._progress.close()


class Texts(Iterator[str]):
    """The texts of pieces, without empty ones."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces

    def __next__(self) -> str:
        while True:
            text = next(self._pieces).text
            if text:
                return text


class BatchTexts(Iterator["tuple[int, str]"]):
    """The texts of pieces with their indices, without empty ones."""

    def __init__(self, pieces: Iterator[tuple[int, Piece]]) -> None:
        self._pieces = pieces

    def __next__(self) -> tuple[int, str]:
        while True:
            index, piece = next(self._pieces)
            if piece.text:
                return index, piece.text


def as_batch(prompt: Any) -> Optional[list[Prompt]]:
    """The prompts, if this is a list of them; ``None`` if it is one."""
    if isinstance(prompt, (str, bytes, bytearray, memoryview, Mapping)) or not hasattr(prompt, "__len__"):
        return None
    if len(prompt) == 0:
        # A list of no prompts; but an array of no integers is a prompt.
        return None if getattr(getattr(prompt, "dtype", None), "kind", "O") in "iu" else []
    first = next(iter(prompt))
    return list(prompt) if isinstance(first, (str, Sequence, Iterator)) or getattr(first, "ndim", 0) >= 1 else None


def listed(prompt: Any) -> Any:
    """A prompt or prompts unchanged, except that a one-shot iterator becomes a list."""
    return list(prompt) if isinstance(prompt, Iterator) else prompt


def several(prompt: Any) -> tuple[list[Prompt], bool]:
    """The prompts as a list, and whether it was a single one, not a list."""
    prompt = listed(prompt)
    batch = as_batch(prompt)
    return ([prompt], True) if batch is None else (batch, False)


def encoded(model: Text, prompt: Any) -> list[int]:
    """Tokens of one prompt."""
    checkpoint()
    if isinstance(prompt, str):
        return model.tokenize(prompt)
    if not hasattr(prompt, "__iter__"):
        raise TypeError(f"a prompt must be a text or tokens, not {type(prompt).__name__}")
    return ffi.integers(prompt, "a prompt")


def native_of(model: Text, params: GenParams, drafter: Any = None) -> ffi.GenParams:
    """The C structure of a generation of ``model``; valid as long as ``params``. ``drafter`` guesses, if another model does."""
    return params.native(bool(model._info["has_tokenizer"]), model._defaults(), drafter, _bad_words(model, params.bad_words))


def _bad_words(model: Text, words: Iterable[Any]) -> list[list[int]]:
    """Words as tokens: texts in the middle of a text and after a space, which have other tokens."""
    found: list[list[int]] = []
    for word in words:
        forms = [model.tokenize(form, add_special=False) for form in (word, " " + word.lstrip())] if isinstance(word, str) else [word]
        found += [form for form in forms if form and form not in found]
    return found


def start(model: Text, seq: int, tokens: Sequence[int], params: GenParams) -> c.c_void_p:
    """A generation of the C API, a user of the library until it is freed: see :func:`free`."""
    array = ffi.int32_array(tokens, "the prompt")
    drafter = params.guesses.drafter()
    native = native_of(model, params, drafter)
    gen = c.c_void_p()
    with model._use() as handle:
        try:
            # (The first one reads the tokenizer.)
            model._lib.interruptible(handle, lambda: model._lib.gen_new(handle, seq, array, len(array), c.byref(native), c.byref(gen)), not model._has_read)
        except BaseException:
            # The interrupt may have come after the generation was made.
            if gen:
                model._lib.gen_free(gen)
            if drafter is not None:
                drafter.close()
            raise
        model._has_read = True
        model._lib.share()
        if drafter is not None:
            drafter.serves(gen)
    return gen


def free(lib: ffi.Library, gen: c.c_void_p) -> None:
    """Ends a generation of :func:`start`."""
    lib.gen_free(gen)
    _guesses.ended(gen)
    lib.release()


def guessed(lib: ffi.Library, gen: c.c_void_p) -> tuple[int, int, int]:
    """How many tokens of a generation were guessed, how many of these became part of the text, and how many steps had guesses."""
    stats = ffi.GenStats()
    lib.gen_stats(gen, c.byref(stats))
    return stats.guessed, stats.accepted, stats.guess_steps


def default_batch(isa: str) -> int:
    """How many sequences generate at once on a machine with such instructions."""
    return MAX_GPU_BATCH if isa.startswith("sm") else MAX_BATCH


def begin(
    model: Text,
    prompts: Sequence[Sequence[int]],
    each: Optional[Iterable[Mapping[str, Any]]],
    max_batch: Optional[int],
    common: Mapping[str, Any],
) -> BatchGeneration:
    """Prepares a generation per prompt, with parameters ``common`` to all unless ``each``
    overrides them."""
    own = None if each is None else list(each)
    if own is not None and len(own) != len(prompts):
        raise ValueError(f"each has {len(own)} entries, but there are {len(prompts)} prompts")
    most = default_batch(model._info["isa"]) if max_batch is None else positive(max_batch, "max_batch", 31)
    gens: list[c.c_void_p] = []
    logprobs: list[bool] = []
    # All are made now, so that errors come from the call itself. They need no cache before they begin.
    try:
        for i, tokens in enumerate(prompts):
            params = GenParams(**{**common, **(own[i] if own is not None else {})})
            gens.append(start(model, ffi.NEW_SEQ, tokens, params))
            logprobs.append(params.logprobs is not None)
    except BaseException:
        for gen in gens:
            free(model._lib, gen)
        raise
    return BatchGeneration(model._lib, gens, logprobs, most, model._handle)


def taken(params: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether progress is shown, and the other parameters of many generations."""
    given = dict(params)
    shown = given.pop("progress", False)
    size = batch_of(given.pop("batch_size", None))
    if size is not None:
        if given.get("max_batch") is not None:
            raise ValueError("batch_size and max_batch are the same; give one of them")
        given["max_batch"] = size
    if given.get("each") is not None:
        given["each"] = list(given["each"])
    return shown, given


def of_one(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a single generation, without parameters of lists, which must not be given."""
    given = dict(params)
    for name in OF_LISTS:
        if given.pop(name, None) not in (None, False):
            raise TypeError(f"{name} is for a list of prompts; there is one prompt")
    return given


def complete(pieces: BatchGeneration, prompts: Sequence[Sequence[int]], progress: Progress) -> list[Completion]:
    """Collects the pieces of all prompts."""
    collected: list[list[Piece]] = [[] for _ in prompts]
    for index, piece in pieces:
        collected[index].append(piece)
        if piece.finish is not None:
            progress.update()
    return [completion(prompt, own, pieces.guessed.get(i, (0, 0, 0))) for i, (prompt, own) in enumerate(zip(prompts, collected))]


def completion(prompt: Sequence[int], pieces: Sequence[Piece], counts: tuple[int, int, int] = (0, 0, 0)) -> Completion:
    """Joins the pieces of one prompt, whose guesses were as good as ``counts`` say."""
    logprobs = [p.logprob for p in pieces if p.logprob is not None]
    return Completion(
        text="".join(p.text for p in pieces),
        tokens=[p.token for p in pieces],
        finish=pieces[-1].finish if pieces else None,
        prompt_tokens=[int(t) for t in prompt],
        logprobs=logprobs if len(logprobs) == len(pieces) and pieces else None,
        guessed=counts[0],
        accepted=counts[1],
        guess_steps=counts[2],
    )
