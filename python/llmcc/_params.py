"""Parameters of generations, and their C structures."""

from __future__ import annotations

import ctypes as c
import difflib
import json
import math
import numbers
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import _ffi as ffi
from ._errors import LlmccError
from ._guesses import Drafter, Guesses

#: Parameters that a model's own settings may have.
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "repetition_window")

#: Forms of texts, in the order of their numbers in C (``LLMCC_GRAMMAR_*``).
GRAMMARS = ("json_schema", "regex", "grammar", "choices")

#: Parameters of lists of prompts.
OF_LISTS = ("each", "max_batch", "batch_size", "progress")

#: Parameters of generations in other libraries, and those to give here.
_ELSEWHERE = {
    **dict.fromkeys(("max_new_tokens", "max_length", "max_gen_toks", "max_completion_tokens", "n_predict", "num_predict"), "max_tokens"),
    "do_sample": "temperature (0: the most probable token), or greedy=True",
    "temp": "temperature",
    "repeat_penalty": "repetition_penalty",
    **dict.fromkeys(("repeat_last_n", "penalty_last_n"), "repetition_window"),
    **dict.fromkeys(("stop_sequences", "stop_strings", "stop_words", "until"), "stop"),
    **dict.fromkeys(("eos_token_id", "stop_token_ids"), "stop_tokens"),
    **dict.fromkeys(("bad_words_ids", "no_bad_words"), "bad_words"),
    "suppress_tokens": "logit_bias ({token: -math.inf} bans a token)",
    **dict.fromkeys(("response_format", "guided_json", "schema", "json"), "json_schema"),
    **dict.fromkeys(("guided_regex", "pattern"), "regex"),
    **dict.fromkeys(("guided_grammar", "lark"), "grammar"),
    **dict.fromkeys(("guided_choice", "choice", "options"), "choices"),
    **dict.fromkeys(("min_new_tokens", "min_length"), "min_tokens"),
    **dict.fromkeys(("n", "best_of", "num_return_sequences"), "a list of prompts, and each=[{'seed': 0}, {'seed': 1}, ...]"),
    **dict.fromkeys(("random_seed", "generator", "random_state"), "seed"),
    "skip_special_tokens": "show_special",
    **dict.fromkeys(("streamer", "stream"), "the method stream"),
    **dict.fromkeys(("output_scores", "return_dict_in_generate", "top_logprobs"), "the method complete, with logprobs"),
    "num_beams": "greedy=True (there is no search with beams)",
}


def unknown_parameter(name: str, known: Sequence[str]) -> TypeError:
    """The error for a keyword that nothing has, with the one that is meant."""
    return unknown_keyword(name, known, _ELSEWHERE)


def unknown_keyword(name: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> TypeError:
    """The same for a function of its own. ``elsewhere`` has the keywords of other libraries."""
    meant = elsewhere.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
    return TypeError(f"{name} is not a parameter here; use {meant}" if meant else f"{name} is not a parameter here; known are {', '.join(known)}")


def native_sampling(
    *,
    temperature: Optional[float] = None,
    top_k: Optional[int] = None,
    top_p: Optional[float] = None,
    min_p: Optional[float] = None,
    repetition_penalty: Optional[float] = None,
    repetition_window: Optional[int] = None,
    seed: Optional[int] = None,
    logit_bias: Optional[Mapping[int, float]] = None,
) -> ffi.Sampling:
    """How to choose a token, as C takes it. None: the default."""
    bias = native_bias(logit_bias)
    share = within(top_p, "top_p", 1.0, 0.0, 1.0, "a number from 0 to 1 (1: all tokens)")
    return ffi.Sampling(
        temperature=within(temperature, "temperature", 0.0, 0.0, _LARGEST, "0 (the most probable token) or a positive number"),
        top_k=0 if top_k is None else natural(top_k, "top_k", 32),
        # A share of 0 keeps the most probable token, as the smallest number above it does; to C, 0 may be a field forgotten.
        top_p=max(share, _SMALLEST),
        min_p=within(min_p, "min_p", 0.0, 0.0, 1.0, "a number from 0 (all tokens) to 1"),
        repetition_penalty=within(repetition_penalty, "repetition_penalty", 1.0, _SMALLEST, _LARGEST, "a positive number (1: off)"),
        repetition_window=0 if repetition_window is None else natural(repetition_window, "repetition_window", 32),
        seed=0 if seed is None else natural(seed, "seed", 64),
        bias=bias,
        n_bias=0 if bias is None else len(bias),
    )


#: The largest float32, and the smallest with all its bits.
_LARGEST, _SMALLEST = 3.4028234663852886e38, 1.1754943508222875e-38


def within(value: Optional[float], name: str, default: float, least: float, most: float, use: str) -> float:
    """``value``, which must be a number of the range, or None for the default."""
    if value is None:
        return default
    number = real(value, name)
    if not least <= number <= most:
        raise LlmccError(f"{name} is {number}; use {use}")
    return number


def native_bias(logit_bias: Optional[Mapping[int, float]]) -> Any:
    """A C array, or None."""
    if logit_bias is None:
        return None
    if not isinstance(logit_bias, Mapping):
        raise TypeError(f"logit_bias must map tokens to numbers, not be a {type(logit_bias).__name__}")
    entries: list[ffi.LogitBias] = []
    for token, value in logit_bias.items():
        if isinstance(token, bool) or not isinstance(token, numbers.Integral):
            raise TypeError(f"logit_bias: {token!r} is not a token id (an integer)")
        if not 0 <= token < 2**31:
            raise ValueError(f"logit_bias: token {token} is outside the vocabulary")
        number = real(value, f"logit_bias[{token}]")
        if math.isnan(number) or number == math.inf or math.isinf(c.c_float(number).value) != math.isinf(number):
            raise ValueError(f"logit_bias[{token}] is {value}; use a number that float32 holds, or -inf to ban the token")
        entries.append(ffi.LogitBias(int(token), number))
    return (ffi.LogitBias * len(entries))(*entries)


def _grammar(forms: Mapping[str, Any]) -> tuple[int, Optional[bytes]]:
    """The number of the form that is given, and its source; 0 without one."""
    given = [name for name, form in forms.items() if form is not None]
    if not given:
        return 0, None
    if len(given) > 1:
        raise TypeError(f"a text has one form: give {' or '.join(given)}")
    name, form = given[0], forms[given[0]]
    if name == "choices" and isinstance(form, str):
        raise TypeError("choices must be a list of texts, not a text; put it into a list")
    if name == "choices" or (name == "json_schema" and not isinstance(form, str)):
        form = json.dumps(list(form) if name == "choices" else form)
    return GRAMMARS.index(name) + 1, utf8(form)


class GenParams:
    """Checks the parameters of a generation and makes the C structure."""

    def __init__(
        self,
        max_tokens: Optional[int] = None,
        *,
        stop: Union[None, str, Iterable[str]] = (),
        stop_tokens: Optional[Iterable[int]] = (),
        ignore_eos: bool = False,
        show_special: bool = False,
        logprobs: Optional[int] = None,
        greedy: bool = False,
        temperature: Optional[float] = None,
        top_k: Optional[int] = None,
        top_p: Optional[float] = None,
        min_p: Optional[float] = None,
        repetition_penalty: Optional[float] = None,
        repetition_window: Optional[int] = None,
        seed: Optional[int] = None,
        logit_bias: Optional[Mapping[int, float]] = None,
        adapter: Optional[int] = None,
        draft: Any = None,
        guesses: Optional[int] = None,
        min_tokens: Optional[int] = None,
        presence_penalty: Optional[float] = None,
        frequency_penalty: Optional[float] = None,
        bad_words: Optional[Iterable[Union[str, Sequence[int]]]] = None,
        json_schema: Union[None, str, Mapping[str, Any]] = None,
        regex: Optional[str] = None,
        grammar: Optional[str] = None,
        choices: Optional[Iterable[str]] = None,
        image_rows: Any = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            name = next(iter(unknown))
            if name in OF_LISTS:
                raise TypeError(f"{name} is for a list of prompts as a whole: give it once, beside the prompts")
            known = ("max_tokens", "stop", "stop_tokens", "ignore_eos", "show_special", "logprobs", "greedy", *SAMPLING, "seed", "logit_bias", "adapter", "draft", "guesses", "min_tokens", "presence_penalty", "frequency_penalty", "bad_words", *GRAMMARS, *OF_LISTS)
            raise unknown_parameter(name, known)
        self.max_tokens = positive(max_tokens, "max_tokens", 64)
        values = (temperature, top_k, top_p, min_p, repetition_penalty, repetition_window)
        # Missing parameters are the model's to choose.
        self.given: dict[str, Any] = {name: value for name, value in zip(SAMPLING, values) if value is not None}
        self.fixed: dict[str, Any] = {"seed": seed, "logit_bias": logit_bias}
        native_sampling(**self.given, **self.fixed)  # refuses wrong values
        self.greedy = greedy
        if greedy and temperature:
            raise ValueError(f"greedy takes the most probable token, and temperature is {temperature}: give one of them")
        stops = [stop] if isinstance(stop, str) else list(() if stop is None else stop)
        self.stop = [utf8(s) for s in stops]
        if any(b"\0" in s for s in self.stop):
            raise LlmccError("a stop string holds a NUL character")
        self.stop_tokens = ffi.int32_array(() if stop_tokens is None else stop_tokens, "stop_tokens")
        self.flags = (ffi.GEN_IGNORE_EOS if ignore_eos else 0) | (ffi.GEN_SHOW_SPECIAL if show_special else 0)
        # None: no log-probabilities; a number: with so many alternatives.
        self.logprobs = None if logprobs is None else natural(logprobs, "logprobs", 32)

        self.min_tokens = 0 if min_tokens is None else natural(min_tokens, "min_tokens", 64)
        self.penalties = [
            within(value, name, 0.0, -_LARGEST, _LARGEST, "a number (0: off)")
            for name, value in (("presence_penalty", presence_penalty), ("frequency_penalty", frequency_penalty))
        ]
        if isinstance(bad_words, str):
            raise TypeError("bad_words must be a list of texts, not a text; put it into a list")
        # Texts, which become tokens with the model, and lists of tokens.
        self.bad_words = [word if isinstance(word, str) else ffi.integers(word, "a bad word") for word in bad_words or ()]
        # The language of the text's grammar, and the grammar.
        self.language, self.grammar = _grammar(dict(zip(GRAMMARS, (json_schema, regex, grammar, choices))))
        # An adapter number for the generation's own sequence; 0: none.
        self.adapter = 0 if adapter is None else natural(adapter, "adapter", 31)
        # C arrays of the prompt's images (`_images.Pictures`): all rows, and rows and columns of tokens; None: it has none.
        self.image_rows: Any = None
        self.image_grids: Any = None
        if image_rows is not None:
            self.image_rows, self.image_grids = image_rows.native()
        # Where guesses of the next tokens come from, and how many a step may have; 0: as many as suit.
        self.guesses, self.most_guesses = Guesses(draft), positive(guesses, "guesses", 5)

    def native(
        self, text: bool, own: Optional[Mapping[str, Any]] = None, drafter: Optional[Drafter] = None, bad_words: Sequence[Sequence[int]] = ()
    ) -> ffi.GenParams:
        """The C structure; valid as long as ``self``. ``own`` are the model's own settings, if it can have any; ``drafter`` guesses, if another model does;
        ``bad_words`` are the bad words of ``self`` as tokens."""
        words = ffi.int32_array([token for word in bad_words for token in word], "bad_words")
        lengths = (c.c_size_t * len(bad_words))(*(len(word) for word in bad_words))
        chosen = {**{name: own[name] for name in SAMPLING if name in own}, **self.given} if own and not self.greedy else dict(self.given)
        if own is not None and not self.greedy and not chosen.get("temperature"):
            # Zeros would ask for the model's own way of choosing.
            chosen["top_k"] = 1
        self._sampling = native_sampling(**chosen, **self.fixed)
        plain = ffi.GEN_NO_DEFAULTS if own is not None and self.greedy else 0
        native = ffi.GenParams(
            max_tokens=self.max_tokens,
            sampling=self._sampling,
            stop=(c.c_char_p * len(self.stop))(*self.stop),
            n_stop=len(self.stop),
            stop_tokens=self.stop_tokens,
            n_stop_tokens=len(self.stop_tokens),
            flags=self.flags | plain | (0 if text else ffi.GEN_NO_TEXT) | (0 if self.logprobs is None else ffi.GEN_LOGPROBS),
            top_logprobs=self.logprobs or 0,
            adapter=self.adapter,
            image_rows=c.cast(self.image_rows, c.c_void_p) if self.image_rows is not None else None,
            n_image_rows=0 if self.image_rows is None else len(self.image_rows),
            image_grids=c.cast(self.image_grids, c.c_void_p) if self.image_grids is not None else None,
            n_image_grids=0 if self.image_grids is None else len(self.image_grids) // 2,
            min_tokens=self.min_tokens,
            presence_penalty=self.penalties[0],
            frequency_penalty=self.penalties[1],
            bad_words=words,
            bad_lengths=lengths,
            n_bad=len(lengths),
            grammar=self.grammar,
            grammar_len=len(self.grammar or b""),
            grammar_language=self.language,
        )
        self.guesses.write(native, self.most_guesses, drafter)
        return native


def batch_of(batch_size: Optional[int]) -> Optional[int]:
    """A number of texts, or ``None``.

    :raises LlmccError: it is no positive integer.
    """
    return None if batch_size is None else positive(batch_size, "batch_size", 31)


def real(value: float, name: str) -> float:
    """``value``, which must be a number: Python's or NumPy's."""
    value = scalar(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is {value}, more than a float holds") from None


def natural(value: int, name: str, bits: int) -> int:
    """``value``, which must be an integer, Python's or NumPy's, that fits ``bits`` bits."""
    value = scalar(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= value < 2**bits:
        raise LlmccError(f"{name} is {value!r}; use an integer from 0 to 2**{bits} - 1")
    return int(value)


def scalar(value: Any) -> Any:
    """The number in an array without dimensions; anything else as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and hasattr(value, "__array__"):
        return value.item()
    return value


def positive(value: Optional[int], name: str, bits: int) -> int:
    """For C, where 0 means the default; None does so here."""
    if value is None:
        return 0
    number: Any = scalar(value)
    if isinstance(number, bool) or not isinstance(number, numbers.Integral) or not 0 < int(number) < 2**bits:
        raise LlmccError(f"{name} is {number!r}; use an integer from 1 to 2**{bits} - 1, or None for the default")
    return int(number)


def utf8(text: str) -> bytes:
    """``text`` as C takes it."""
    if not isinstance(text, str):
        raise LlmccError(f"expected text (str), got {type(text).__name__}")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LlmccError(f"the text is not valid Unicode: {error}") from None
