"""Models: loading, text, logits, generation."""

from __future__ import annotations

import ctypes as c
import itertools
import json
import numbers
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Iterator, Literal, Mapping, Optional, Sequence, Union, overload

from . import _batch, _chat, _classes, _embed, _ffi as ffi, _pairs, _score
from ._batch import Texts as _texts
from ._errors import LlmccError, Status, Unique
from ._params import SAMPLING, GenParams as _GenParams, native_sampling, natural as _natural, positive as _positive, scalar as _scalar, unknown_parameter, utf8 as _utf8
from ._pieces import Completion, Piece, TokenLogprob
from ._rows import Rows, batch_rows, hidden_rows, rows_of

if TYPE_CHECKING:
    import numpy as np

    from ._session import Session
    from ._speculate import Speculation

Prompt = Union[str, Sequence[int]]
Prompts = Sequence[Prompt]
Message = Mapping[str, Any]

# Keywords of Transformers that are not passed to its templates.
_NOT_OF_TEMPLATES = frozenset(
    ("padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "sanitize_control_tokens")
)

#: Bytes of text with which work may take long.
_MUCH_TEXT = 1 << 15
_OUTPUT = {0: "logits", 1: "embedding", 2: "scores"}
#: Added to a GPU's compute capability times ten, it gives the number of the GPU's version.
_SM = 1000
_ISA = {1: "x86-64", 3: "x86-64-v3", 4: "x86-64-v4", 64: "aarch64"}


def load(
    path: Union[str, os.PathLike[str]],
    threads: Optional[int] = None,
    max_tokens: Optional[int] = None,
    *,
    max_batch_tokens: Optional[int] = None,
    profile: bool = False,
    pin: bool = False,
    portable: bool = False,
) -> Model:
    """Opens an artifact.

    :param threads: by default one per physical core.
    :param max_tokens: tokens the KV cache holds for all sequences together; by default the longest context, at least 16384, or as
        many as fit in half of the memory.
    :param max_batch_tokens: tokens taken through the kernels at once; bounds the memory for activations (default 512).
    :param profile: measure every kernel, see :meth:`Model.stats`.
    :param pin: keep each thread on a processor of its own, the calling one while it computes.
    :param portable: give the same bits on every processor. Without it only products of bf16 rows differ: processors with AMX sum them in another order,
        several times as fast.
    """
    return Model(path, threads, max_tokens, max_batch_tokens=max_batch_tokens, profile=profile, pin=pin, portable=portable)


class Model(Unique):
    """An open artifact. Close it, or use it in a ``with`` statement. Methods may be called from several threads; they wait for each other."""

    _remedy = "share it (its methods may be called from several threads), or open it once more with llmcc.load(model.path): models of one file share its weights"

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        threads: Optional[int] = None,
        max_tokens: Optional[int] = None,
        *,
        max_batch_tokens: Optional[int] = None,
        profile: bool = False,
        pin: bool = False,
        portable: bool = False,
    ) -> None:
        self._handle: Optional[c.c_void_p] = None
        self._lock = threading.Lock()
        self._busy = 0
        # The tokenizer was read.
        self._has_read = False
        self._known: Optional[dict[str, Any]] = None
        self.path = os.path.abspath(os.fspath(path))
        options = ffi.Options(
            threads=_positive(threads, "threads", 32),
            max_tokens=_positive(max_tokens, "max_tokens", 64),
            max_batch_tokens=_positive(max_batch_tokens, "max_batch_tokens", 64),
            flags=(ffi.OPEN_PROFILE if profile else 0) | (ffi.OPEN_PIN if pin else 0) | (ffi.OPEN_PORTABLE if portable else 0),
        )
        handle = c.c_void_p()
        self._lib = ffi.Library.acquire(self.path)
        try:
            self._lib.open(c.byref(options), c.byref(handle))
        except BaseException as error:
            try:
                if isinstance(error, LlmccError) and error.status == Status.ARTIFACT:
                    self._lib._need_same(self.path)
            finally:
                self._lib.release()
            raise
        self._handle = handle
        try:
            self._info = self._read_info()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Set before anything can fail in __init__, but __init__ may not have run at all.
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<llmcc.Model {self.path!r}{'' if self._handle else ' (closed)'}>"

    def close(self) -> None:
        """Frees the model's memory and threads, and unloads the artifact when no other object of it is open. Closing twice is fine. Streams still under way keep both until
        they end."""
        with self._lock:
            if self._busy:
                raise LlmccError("the model is in use by another thread; wait for that first")
            handle, self._handle = self._handle, None
        if handle is not None:
            self._lib.close(handle)
            self._lib.release()

    @property
    def info(self) -> dict[str, Any]:
        """Sizes (``vocab``, ``hidden``, ``layers``, ``max_context``), memory (``weights_bytes``, ``kv_bytes_per_token``, ``activation_bytes``...), ``threads``,
        ``isa``, ``bos_token``, ``eos_tokens``, ``has_tokenizer``, ``has_chat_template``, ``output`` (``"logits"``, ``"embedding"`` or ``"scores"``), ``columns`` of a row of it,
        ``normalized`` (embeddings have length 1), ``whole`` (a sequence is computed in one step), ``has_types`` (tokens of the second of two
        texts are of another type)."""
        return dict(self._info)

    @property
    def manifest(self) -> dict[str, Any]:
        """How the artifact was made: source, options, formats, hashes."""
        with self._use() as handle:
            result: dict[str, Any] = json.loads(self._lib.manifest(handle).decode("utf-8"))
        return result

    @property
    def generation_defaults(self) -> dict[str, Any]:
        """The checkpoint's defaults for generations (``generation_config.json``), which hold where no parameter is given, unless ``greedy=True``."""
        return dict(self._facts()["generation"])

    @property
    def prompts(self) -> dict[str, str]:
        """Prompts of an embedder by their names, for ``prompt_name`` of :meth:`embed`."""
        return dict(self._facts()["prompts"])

    @property
    def default_prompt_name(self) -> Optional[str]:
        """Name of the prompt that texts get if none is asked for."""
        name: Optional[str] = self._facts()["default_prompt"]
        return name

    @property
    def classes(self) -> list[str]:
        """Names of a classifier's classes, in the order of its scores; empty where its checkpoint names none."""
        return list(self._facts()["classes"])

    def stats(self) -> dict[str, Any]:
        """Memory in use and, with ``profile=True``, the time of every kernel."""
        with self._use() as handle:
            result: dict[str, Any] = json.loads(self._lib.text(lambda *out: self._lib.stats(handle, *out)))
        return result

    # ---- text

    def tokenize(self, text: str, add_special: bool = True) -> list[int]:
        """Tokens of ``text``. ``add_special`` adds the special tokens around a plain prompt (a beginning-of-sequence token, mostly)."""
        data = _utf8(text)
        flags = ffi.ADD_SPECIAL if add_special else 0
        with self._use() as handle:
            ids: list[int] = self._lib.interruptible(
                handle,
                lambda: self._lib.ints(lambda *out: self._lib.tokenize(handle, data, len(data), flags, *out), len(data) + 16),
                len(data) >= _MUCH_TEXT or not self._has_read,
            )
            self._has_read = True
            return ids

    def detokenize(self, tokens: Sequence[int], show_special: bool = False) -> str:
        """Text of ``tokens``."""
        array = ffi.int32_array(tokens, "tokens")
        flags = ffi.SHOW_SPECIAL if show_special else 0
        with self._use() as handle:
            text: str = self._lib.interruptible(
                handle,
                lambda: self._lib.text(lambda *out: self._lib.detokenize(handle, array, len(array), flags, *out), 16 * len(array) + 64),
                4 * len(array) >= _MUCH_TEXT,
            )
            return text

    def token_to_piece(self, token: int) -> str:
        """The token as the tokenizer's vocabulary writes it (``"Ġthe"``, ``"▁the"``, ``"<0x0A>"``); empty for one that only the model has."""
        with self._use() as handle:
            return self._lib.text(lambda *out: self._lib.token_piece(handle, _token(token), *out), 64)

    def piece_to_token(self, piece: str) -> Optional[int]:
        """The token that the vocabulary writes so, if there is one."""
        data, token = _utf8(piece), c.c_int32()
        with self._use() as handle:
            self._lib.piece_token(handle, data, len(data), c.byref(token))
        return token.value if token.value >= 0 else None

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds in the middle of a text (``b" the"``), not always whole characters; of a special token its name."""
        with self._use() as handle:
            return self._lib.bytes(lambda *out: self._lib.token_bytes(handle, _token(token), *out))

    def is_special(self, token: int) -> bool:
        """Whether texts leave the token out, unless they are asked for it (``show_special``)."""
        return bool(self._token_flags(token) & ffi.TOKEN_SPECIAL)

    def is_byte(self, token: int) -> bool:
        """Whether the token is a single byte, for bytes without another token (``"<0x0A>"``)."""
        return bool(self._token_flags(token) & ffi.TOKEN_BYTE)

    @property
    def vocab_size(self) -> int:
        """Entries of the model's vocabulary: logits of a row."""
        vocab: int = self._info["vocab"]
        return vocab

    @property
    def tokenizer_size(self) -> int:
        """Entries of the tokenizer's vocabulary; the model's may be larger."""
        n = c.c_size_t()
        with self._use() as handle:
            self._lib.tokenizer_size(handle, c.byref(n))
        return n.value

    @property
    def bos_token(self) -> Optional[int]:
        """The token that begins a sequence, if one is known."""
        bos: Optional[int] = self._info["bos_token"]
        return bos

    @property
    def eos_tokens(self) -> list[int]:
        """Tokens that end a generation."""
        return list(self._info["eos_tokens"])

    def _token_flags(self, token: int) -> int:
        flags = c.c_uint32()
        with self._use() as handle:
            self._lib.token_flags(handle, _token(token), c.byref(flags))
        return flags.value

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Optional[Sequence[Mapping[str, Any]]] = ...,
        add_generation_prompt: Optional[bool] = ...,
        *,
        tokenize: Literal[False] = ...,
        **variables: Any,
    ) -> str: ...

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Optional[Sequence[Mapping[str, Any]]] = ...,
        add_generation_prompt: Optional[bool] = ...,
        *,
        tokenize: Literal[True],
        **variables: Any,
    ) -> list[int]: ...

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        add_generation_prompt: Optional[bool] = None,
        *,
        documents: Optional[Sequence[Mapping[str, Any]]] = None,
        chat_template: Optional[str] = None,
        continue_final_message: Union[bool, str] = False,
        tokenize: bool = False,
        **variables: Any,
    ) -> Union[str, list[int]]:
        """The prompt for a conversation, by the model's chat template. ``variables`` are passed to the template.

        :param add_generation_prompt: whether an answer begins at the end; by default yes, unless the last message is continued.
        :param chat_template: a template instead of the model's, or, of a model with several, the name of one.
        :param continue_final_message: leave the last message open, for the model to go on with it; a text names the member of the message
            that is gone on with (``"content"`` by default).
        :param tokenize: return the tokens of the prompt instead of its text.
        """
        for name in _NOT_OF_TEMPLATES & variables.keys():
            if variables.pop(name) not in (None, False):
                raise TypeError(f"apply_chat_template does not support {name}; it would not be a variable of the template")
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        conversation: dict[str, Any] = {"messages": _chat.as_messages(messages), "add_generation_prompt": add_generation_prompt, **variables}
        given = {"tools": tools, "documents": documents}
        conversation.update({name: list(value) for name, value in given.items() if value is not None})
        if chat_template is not None:
            conversation["chat_template"] = chat_template
        if continue_final_message:
            conversation["continue_final_message"] = continue_final_message
        try:
            data = _utf8(json.dumps(conversation, ensure_ascii=False))
        except TypeError as error:
            raise LlmccError(f"the conversation is not JSON: {error}") from None
        with self._use() as handle:
            text: str = self._lib.interruptible(
                handle, lambda: self._lib.text(lambda *out: self._lib.apply_chat_template(handle, data, len(data), *out), 2 * len(data) + 4096), len(data) >= _MUCH_TEXT
            )
        return self.tokenize(text, add_special=False) if tokenize else text

    # ---- generation

    @overload
    def generate(self, prompt: Prompt, *, max_tokens: Optional[int] = None, **params: Any) -> str: ...

    @overload
    def generate(self, prompt: Prompts, *, max_tokens: Optional[int] = None, **params: Any) -> list[str]: ...

    def generate(self, prompt: Union[Prompt, Prompts], *, max_tokens: Optional[int] = None, **params: Any) -> Union[str, list[str]]:
        """Continues ``prompt`` (text, or tokens) and returns the new text; for a list of prompts the list of texts.

        Prompts of a list generate together: up to ``max_batch`` at once, and where one ends, the next begins. They wait for room in the cache where there
        is none. Each text is the one it would have alone, bit for bit.

        :param max_tokens: most tokens to generate; by default the model's limit, else until it ends the text or its context is full.
        Defaults of ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty`` and ``max_tokens`` come from the checkpoint's ``generation_config.json``
        (:attr:`generation_defaults`). Its other settings (banned tokens and words, stop strings...) hold, too. Without one, the most probable token is taken.

        :param greedy: always take the most probable token, and ignore the model's own settings.
        :param temperature: 0 always takes the most probable token.
        :param top_k: keep this many of the most probable tokens.
        :param top_p: keep the fewest most probable tokens with this sum of probabilities, at least one; 1 (default): all.
        :param min_p: drop tokens less probable than this fraction of the most probable one.
        :param repetition_penalty: a positive number; above 1 it makes tokens seen before less probable.
        :param repetition_window: how many of the last tokens count as seen (default: all).
        :param seed: equal seeds give equal texts (default 0). None means the default, for the other numbers, too.
        :param logit_bias: numbers added to the logits of tokens, before everything else (the repetition penalty comes next); ``-math.inf`` bans a token.
        :param stop: texts that end the generation and are not part of it.
        :param stop_tokens: tokens that end the generation, besides the model's own.
        :param ignore_eos: go on after end-of-sequence tokens.
        :param show_special: keep special tokens in the text.
        :param adapter: the number of an adapter that :meth:`load_adapter` returned; 0 (default): none.
        :param each: with a list of prompts: a mapping per prompt with its own parameters (``{"seed": 3}``), which override the common ones.
        :param max_batch: with a list of prompts: how many generate at once (default 64, on a GPU 256).
        """
        prompt = _batch.listed(prompt)
        prompts = _batch.as_batch(prompt)
        if prompts is not None:
            return [c.text for c in self.complete(prompts, max_tokens=max_tokens, **params)]
        return "".join(_texts(self._pieces_of(prompt, max_tokens, params)))

    @overload
    def complete(self, prompt: Prompt, *, max_tokens: Optional[int] = None, prompt_logprobs: Optional[int] = None, **params: Any) -> Completion: ...

    @overload
    def complete(self, prompt: Prompts, *, max_tokens: Optional[int] = None, prompt_logprobs: Optional[int] = None, **params: Any) -> list[Completion]: ...

    def complete(
        self, prompt: Union[Prompt, Prompts], *, max_tokens: Optional[int] = None, prompt_logprobs: Optional[int] = None, **params: Any
    ) -> Union[Completion, list[Completion]]:
        """As :meth:`generate`, but returns a :class:`Completion` with all results of the generation; for a list of prompts a list of them.

        :param logprobs: also give the log-probability of each token; the number says how many of the most probable tokens to give with each, and may be 0.
        :param prompt_logprobs: the same for the tokens of the prompt (which are evaluated once more for it).
        """
        prompt = _batch.listed(prompt)
        batch = _batch.as_batch(prompt)
        prompts = [_batch.encoded(self, p) for p in ([prompt] if batch is None else batch)]
        if params.get("each") is not None:
            params["each"] = list(params["each"])
        if prompt_logprobs is not None:
            _natural(prompt_logprobs, "prompt_logprobs", 31)
            if any(p.get("adapter", 0) != 0 for p in [params, *(params.get("each") or ())]):
                raise LlmccError("prompt_logprobs are those of the model without an adapter; use a session with the adapter, and its logits")
        pieces = self._begin(prompts, max_tokens, params)
        results = _batch.complete(pieces, prompts)
        if prompt_logprobs is not None:
            judged = _score.score(self, [(p, 1) for p in prompts], prompt_logprobs)
            results = [replace(r, prompt_logprobs=[None, *logprobs]) for r, logprobs in zip(results, judged)]
        return results[0] if batch is None else results

    @overload
    def stream(self, prompt: Prompt, *, max_tokens: Optional[int] = None, **params: Any) -> Iterator[str]: ...

    @overload
    def stream(self, prompt: Prompts, *, max_tokens: Optional[int] = None, **params: Any) -> Iterator[tuple[int, str]]: ...

    def stream(
        self, prompt: Union[Prompt, Prompts], *, max_tokens: Optional[int] = None, **params: Any
    ) -> Union[Iterator[str], Iterator[tuple[int, str]]]:
        """As :meth:`generate`, but yields the text as it comes, in whole characters; for a list of prompts pairs of a prompt's index and a text."""
        prompt = _batch.listed(prompt)
        prompts = _batch.as_batch(prompt)
        if prompts is not None:
            return _batch.BatchTexts(self.pieces(prompts, max_tokens=max_tokens, **params))
        return _texts(self._pieces_of(prompt, max_tokens, params))

    @overload
    def pieces(self, prompt: Prompt, *, max_tokens: Optional[int] = None, **params: Any) -> Iterator[Piece]: ...

    @overload
    def pieces(self, prompt: Prompts, *, max_tokens: Optional[int] = None, **params: Any) -> Iterator[tuple[int, Piece]]: ...

    def pieces(
        self, prompt: Union[Prompt, Prompts], *, max_tokens: Optional[int] = None, **params: Any
    ) -> Union[Iterator[Piece], Iterator[tuple[int, Piece]]]:
        """As :meth:`generate`, but yields every token as a :class:`Piece`; for a list of prompts pairs of a prompt's index and a piece.

        :param logprobs: as in :meth:`complete`.
        """
        prompt = _batch.listed(prompt)
        prompts = _batch.as_batch(prompt)
        if prompts is not None:
            return self._begin([_batch.encoded(self, p) for p in prompts], max_tokens, params)
        return self._pieces_of(prompt, max_tokens, params)

    def _pieces_of(self, prompt: Any, max_tokens: Optional[int], params: Mapping[str, Any]) -> Iterator[Piece]:
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else prompt
        return self._pieces(ffi.NEW_SEQ, tokens, _GenParams(max_tokens, **params))

    def chat(self, messages: Sequence[Message], *, tools: Optional[Sequence[Mapping[str, Any]]] = None, **params: Any) -> str:
        """The model's answer to a conversation. ``params`` as in :meth:`generate`. For many turns, :meth:`session` saves work."""
        return "".join(self.chat_stream(messages, tools=tools, **params))

    def chat_stream(self, messages: Sequence[Message], *, tools: Optional[Sequence[Mapping[str, Any]]] = None, **params: Any) -> Iterator[str]:
        """As :meth:`chat`, but yields the text as it comes."""
        prompt = self.tokenize(self.apply_chat_template(messages, tools), add_special=False)
        return self.stream(prompt, **params)

    def session(self, *, adapter: Optional[int] = None) -> Session:
        """An empty sequence that keeps its cache between calls.

        :param adapter: the number of an adapter that :meth:`load_adapter` returned; 0 or None: none.
        """
        from ._session import Session

        session = Session(self)
        if adapter is not None and adapter != 0:
            with self._use() as handle:
                self._lib.seq_set_adapter(handle, session._need_seq(), _natural(adapter, "adapter", 31))
        return session

    # ---- adapters

    def load_adapter(self, path: Union[str, os.PathLike[str]]) -> int:
        """Loads an adapter of PEFT (LoRA, rsLoRA) from its folder, or from its file of tensors; returns its number: ``generate(..., adapter=number)``.
        Sequences with different adapters generate together. The model must have been compiled with room for it (``llmcc compile --lora-slots``)."""
        data, adapter = os.fsencode(path), c.c_int32()
        with self._use() as handle:
            self._lib.interruptible(handle, lambda: self._lib.adapter_load(handle, data, len(data), c.byref(adapter)))
        return adapter.value

    def unload_adapter(self, adapter: int) -> None:
        """Unloads an adapter. An error as long as a generation or session uses it."""
        with self._use() as handle:
            self._lib.adapter_unload(handle, _natural(adapter, "adapter", 31))

    # ---- embeddings

    def embed(
        self,
        texts: Union[Prompt, Prompts],
        *,
        prompt_name: Optional[str] = None,
        normalize: Optional[bool] = None,
        types: Optional[Sequence[Any]] = None,
        numpy: bool = True,
    ) -> np.ndarray[Any, Any]:
        """The embedding of a text (or of its tokens): float32 ``[columns]``; for a list of texts ``[len(texts), columns]``. A classifier gives the scores of its classes,
        before any softmax or sigmoid. A row does not depend on the others. Only models that were compiled for it have embeddings (``info["output"]``).

        :param prompt_name: name of the prompt (:attr:`prompts`) that is put before each text, as in sentence-transformers; by default the model's, if it has one.
        :param normalize: whether rows have length 1; by default as the model says.
        :param types: for texts given as tokens, the tokens' types (``info["has_types"]``), as :meth:`tokenize_pair` gives them; by default all are 0.
        :param numpy: with False lists, for which NumPy is not needed.
        """
        texts = _batch.listed(texts)
        batch = _batch.as_batch(texts)
        given: list[Any] = [texts] if batch is None else list(batch)
        of_tokens = None if types is None else [ffi.integers(t, "types") for t in ([types] if batch is None else types)]
        prompt = None if prompt_name is None else _embed.named_prompt(self, prompt_name)
        rows = _embed.embed(self, [_embed.encoded(self, t, prompt) for t in given], normalize, of_tokens)
        columns: int = self._info["columns"]
        if not numpy:
            lists = [list(rows[i * columns : (i + 1) * columns]) for i in range(len(given))]
            return lists[0] if batch is None else lists  # type: ignore[return-value]
        array = _numpy().ctypeslib.as_array(rows).reshape(len(given), columns)
        found: np.ndarray[Any, Any] = array[0] if batch is None else array
        return found

    @overload
    def classify(self, texts: Prompt, *, activation: Optional[str] = None) -> list[_classes.Class]: ...

    @overload
    def classify(self, texts: Prompts, *, activation: Optional[str] = None) -> list[list[_classes.Class]]: ...

    def classify(
        self, texts: Union[Prompt, Prompts], *, activation: Optional[str] = None
    ) -> Union[list[_classes.Class], list[list[_classes.Class]]]:
        """The classes of a text by their names, the best first, as tuples ``(name, score)``; for a list of texts a list of such lists. Only for classifiers.

        :param activation: function of the scores of a text: none, ``"sigmoid"`` or ``"softmax"``.
        """
        if self._info["output"] != "scores":
            raise LlmccError("this model scores no classes; classify is for classifiers (...ForSequenceClassification)", Status.UNSUPPORTED)
        batch = _batch.as_batch(texts)
        rows: Any = self.embed([texts] if batch is None else batch, numpy=False)  # type: ignore[list-item]
        found = [_classes.best_first(self.classes, row, activation) for row in rows]
        return found[0] if batch is None else found

    # ---- pairs of texts

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], *, activation: Optional[str] = None, truncate: bool = False, numpy: bool = True
    ) -> np.ndarray[Any, Any]:
        """Scores of the classes of pairs of texts: float32 ``[len(pairs), columns]``. Only models with a head for classes have them (cross-encoders and rerankers,
        ``info["output"] == "scores"``). A pair does not depend on the others.

        :param activation: function of the scores: none, ``"sigmoid"`` (the default of sentence-transformers' ``CrossEncoder`` for one class) or
            ``"softmax"``. It does not change the order.
        :param truncate: cut pairs that are too long for the model, the longer text first (as ``CrossEncoder`` does); else they are an error.
        :param numpy: with False lists, for which NumPy is not needed.
        """
        rows = _pairs.score(self, pairs, activation, truncate)
        if not numpy:
            return rows  # type: ignore[return-value]
        found: np.ndarray[Any, Any] = _numpy().array(rows, dtype="float32").reshape(len(rows), self._info["columns"])
        return found

    def rank(self, query: str, documents: Sequence[str], *, activation: Optional[str] = None, truncate: bool = False) -> list[_pairs.Ranked]:
        """The documents by how well they fit the query, the best first, as tuples ``(index, score)``. Only for models with one class; parameters as in :meth:`score_pairs`."""
        return _pairs.rank(self, query, documents, activation, truncate)

    def tokenize_pair(self, first: str, second: str, *, max_tokens: int = 0) -> tuple[list[int], list[int]]:
        """Tokens of a pair of texts as the model takes it, and their types. With ``max_tokens`` no more than these: the longer text is cut first."""
        return _pairs.tokenize(self, first, second, _natural(max_tokens, "max_tokens", 31))

    # ---- logits

    @overload
    def score(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, prompt: Prompt, continuation: Optional[Prompt] = None, *, top: int = 0
    ) -> list[TokenLogprob]: ...

    @overload
    def score(self, prompt: Prompts, continuation: Optional[Prompts] = None, *, top: int = 0) -> list[list[TokenLogprob]]: ...

    def score(
        self, prompt: Union[Prompt, Prompts], continuation: Union[Prompt, Prompts, None] = None, *, top: int = 0
    ) -> Union[list[TokenLogprob], list[list[TokenLogprob]]]:
        """Log-probabilities of the tokens of ``continuation`` after ``prompt``, or, without one, of the tokens of ``prompt`` from the second on.

        Lists of prompts (and continuations) give lists of results. They are evaluated together, and shared beginnings once.

        :param top: also give this many of the most probable tokens at each place.
        """
        _natural(top, "top", 31)
        prompt = _batch.listed(prompt)
        batch = _batch.as_batch(prompt)
        prompts: list[Any] = [prompt] if batch is None else batch
        continuations: Any = [_batch.listed(continuation)] if batch is None else _batch.listed(continuation)
        if continuation is None:
            items = [(_batch.encoded(self, p), 1) for p in prompts]
        else:
            if isinstance(continuations, str) or len(continuations) != len(prompts):
                raise ValueError(f"continuation must be a list of {len(prompts)}, one for each prompt")
            items = [_score.encode_pair(self, p, q) for p, q in zip(prompts, continuations)]
        if any(len(tokens) == 0 or start == 0 for tokens, start in items):
            raise ValueError("a prompt has no tokens; give at least one (a beginning-of-sequence token, say)")
        results = _score.score(self, items, top)
        return results[0] if batch is None else results

    def speculate(
        self,
        heads: Union[Model, Sequence[Model]],
        prompt: Prompt,
        *,
        max_tokens: Optional[int] = None,
        guesses: Optional[int] = None,
        stop_tokens: Sequence[int] = (),
        ignore_eos: bool = False,
        show_special: bool = False,
        **sampling: Any,
    ) -> Speculation:
        """Continues ``prompt`` with the help of the model's draft heads: the tokens of :meth:`complete` with the same parameters, in fewer steps of the model.

        The model is compiled with ``--hidden-states``, the heads with ``--draft-head`` (of several the next with ``--draft-head=1``, and so on).

        :param heads: a head, or all of them in order.
        :param guesses: how many tokens are guessed for a step; by default as many as there are heads. More are guessed by the last head from its own guesses.
        :param sampling: ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty``, ``repetition_window``, ``seed``, ``logit_bias``, as in
            :meth:`generate`; the other parameters likewise.
        """
        from ._speculate import speculate

        params = _GenParams(max_tokens, stop_tokens=stop_tokens, ignore_eos=ignore_eos, show_special=show_special, **sampling)
        heads = [heads] if isinstance(heads, Model) else _batch.listed(heads)
        if not isinstance(heads, (list, tuple)) or not all(isinstance(head, Model) for head in heads):
            raise TypeError(f"heads must be a Model that was compiled with --draft-head, or a list of such, not {heads!r}")
        guesses = len(heads) if guesses is None else _positive(guesses, "guesses", 31)
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else ffi.integers(prompt, "the prompt")
        return speculate(self, heads, tokens, max_tokens=max_tokens, guesses=guesses, params=params)

    def sample(self, logits: Any, *, history: Sequence[int] = (), draw: int = 0, **sampling: Any) -> int:
        """Chooses a token from one row of logits, as :meth:`generate` does.

        :param logits: float32 ``[vocab]``: a row of :meth:`step` or :meth:`forward`, any array of float32, or numbers.
        :param history: the tokens so far, for the repetition penalty.
        :param draw: index of the choice among the choices of one seed; a generation's n-th token has ``draw=n`` (from 0).
        :param sampling: ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty``, ``repetition_window``, ``seed``, ``logit_bias``, as in
            :meth:`generate`; defaults are off: the model's own settings are not used here.
        """
        row = ffi.float_row(logits, "logits")
        tokens = ffi.int32_array(history, "history")
        unknown = next((name for name in sampling if name not in (*SAMPLING, "seed", "logit_bias")), None)
        if unknown is not None:
            raise unknown_parameter(unknown, (*SAMPLING, "seed", "logit_bias"))
        native = native_sampling(**sampling)
        token = c.c_int32()
        number = _natural(draw, "draw", 64)
        with self._use():
            self._lib.sample(c.byref(row), len(row), c.byref(native), tokens, len(tokens), number, c.byref(token))
        return token.value

    def logprobs(self, logits: Any, tokens: Sequence[int] = (), *, top: int = 0) -> tuple[list[float], list[tuple[int, float]]]:
        """Log-probabilities (the log-softmax, in float64) of ``tokens`` by one row of logits, and the ``top`` most probable tokens with theirs."""
        row = ffi.float_row(logits, "logits")
        array, n = ffi.int32_array(tokens, "tokens"), _natural(top, "top", 31)
        if n > len(row):
            raise ValueError(f"top is {n}, but the row has {len(row)} logits")
        values, top_tokens, top_values = (c.c_double * len(array))(), (c.c_int32 * n)(), (c.c_double * n)()
        with self._use():
            self._lib.logprobs(c.byref(row), len(row), array, len(array), values, n, top_tokens, top_values)
        return list(values), list(zip(top_tokens, top_values))

    def forward(self, tokens: Sequence[int], *, numpy: bool = True) -> np.ndarray[Any, Any]:
        """Logits after each of ``tokens``: float32 ``[len(tokens), vocab]``. With ``numpy=False`` nested lists, for which NumPy is not needed."""
        array = ffi.int32_array(tokens, "tokens")
        seq = self._seq_new()
        try:
            logits: np.ndarray[Any, Any] = self._step(array, [seq] * len(array), range(len(array)), numpy)
            return logits
        finally:
            self._seq_free(seq)

    @overload
    def step(self, batch: Sequence[tuple[Session, Sequence[int]]], *, rows: None = None, hidden: Optional[Sequence[Any]] = None, hidden_out: Optional[list[Any]] = None, numpy: bool = True) -> np.ndarray[Any, Any]: ...

    @overload
    def step(self, batch: Sequence[tuple[Session, Sequence[int]]], *, rows: Union[str, Sequence[Rows]], hidden: Optional[Sequence[Any]] = None, hidden_out: Optional[list[Any]] = None, numpy: bool = True) -> list[np.ndarray[Any, Any]]: ...

    def step(
        self,
        batch: Sequence[tuple[Session, Sequence[int]]],
        *,
        rows: Union[None, str, Sequence[Rows]] = None,
        hidden: Optional[Sequence[Any]] = None,
        hidden_out: Optional[list[Any]] = None,
        numpy: bool = True,
    ) -> Union[np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
        """Appends tokens to several sessions at once, prompts and single tokens mixed, and returns the logits after the last token of each:
        float32 ``[len(batch), vocab]``. A session's logits do not depend on the others, but the work is shared.

        :param rows: the tokens after which logits are needed; then the result is a list of float32 ``[rows, vocab]``, one per session (parts of one array).
            ``"all"`` or ``"last"`` for all sessions, or a choice for each: ``"all"``, ``"last"``, or any indices of its tokens, which may be negative.
        :param hidden: only for a draft head (``info["needs_hidden"]``): for each session an array ``[tokens, hidden]``, which gives with each token the
            model's hidden state of the token before it.
        :param hidden_out: a list that gets the hidden states of the tokens (``info["keeps_hidden"]``): float32 ``[tokens, hidden]`` for each session.
        """
        entries = [(session, ffi.integers(tokens, "tokens")) for session, tokens in map(_entry, batch)]
        hidden = _batch.listed(hidden)
        wanted = batch_rows(rows, [len(tokens) for _, tokens in entries])
        if hidden_out is not None and not isinstance(hidden_out, list):
            raise TypeError(f"hidden_out must be a list, to which hidden states are appended, not {type(hidden_out).__name__}")
        given = hidden_rows(hidden, [len(tokens) for _, tokens in entries], self._info["hidden"])
        all_tokens: list[int] = []
        seqs: list[int] = []
        out: list[int] = []
        token_ends: list[int] = []
        for (session, tokens), indices in zip(entries, wanted):
            if session._model is not self or len(tokens) == 0:
                raise LlmccError("a batch holds pairs of a session of this model and at least one token")
            if session._need_seq() in seqs:
                raise LlmccError("a batch holds a session twice; join its tokens")
            pending = session._pending()
            if pending and given is not None:
                raise LlmccError("tokens of a session were forgotten, and their rows with them: start it again")
            out += [len(all_tokens) + len(pending) + index for index in indices]
            all_tokens += [*pending, *tokens]
            seqs += [session._need_seq()] * (len(pending) + len(tokens))
            token_ends.append(len(all_tokens))
        array = ffi.int32_array(all_tokens, "tokens")
        left = None if hidden_out is None else (c.c_float * (len(array) * self._info["hidden"]))()
        logits: np.ndarray[Any, Any] = self._step(array, seqs, out, numpy, given, left)
        for (session, tokens), end in zip(entries, token_ends):
            session._tokens.extend(tokens)
            if hidden_out is not None:
                hidden_out.append(rows_of(left, (end - len(tokens), end), self._info["hidden"], numpy))
        if rows is None:
            return logits
        ends = list(itertools.accumulate(len(indices) for indices in wanted))
        return [logits[end - len(indices) : end] for end, indices in zip(ends, wanted)]

    # ---- for Session

    def _seq_new(self) -> int:
        seq = c.c_int32()
        with self._use() as handle:
            self._lib.seq_new(handle, c.byref(seq))
        return seq.value

    def _seq_free(self, seq: int) -> None:
        if self._handle is not None:
            with self._use() as handle:
                self._lib.seq_free(handle, seq)

    def _seq_fork(self, seq: int) -> int:
        copy = c.c_int32()
        with self._use() as handle:
            self._lib.seq_fork(handle, seq, c.byref(copy))
        return copy.value

    def _seq_truncate(self, seq: int, length: int) -> None:
        with self._use() as handle:
            self._lib.seq_truncate(handle, seq, length)

    def _step_rows(self, tokens: Sequence[int], seqs: Sequence[int]) -> None:
        """A step without results."""
        if len(tokens) > 0:
            self._step(ffi.int32_array(tokens, "tokens"), seqs, [], numpy=False)

    def _step_logprobs(
        self, tokens: Sequence[int], seqs: Sequence[int], rows: Sequence[int], targets: Sequence[int], top: int
    ) -> list[TokenLogprob]:
        """A step that judges ``targets`` after the tokens ``rows``."""
        batch = _native_batch(ffi.int32_array(tokens, "tokens"), seqs, rows)
        with self._use() as handle:
            found: list[TokenLogprob] = self._lib.interruptible(
                handle, lambda: _score.step_logprobs(self._lib, handle, batch, targets, top), len(tokens) >= _batch.FEW
            )
            return found

    def _step(self, tokens: Any, seqs: Sequence[int], rows: Sequence[int], numpy: bool, hidden: Any = None, left: Any = None) -> Any:
        vocab = self._info["columns"]
        np = _numpy() if numpy else None
        logits: Any = np.empty((len(rows), vocab), dtype=np.float32) if np else (c.c_float * (len(rows) * vocab))()
        self._step_into(tokens, seqs, rows, logits.ctypes.data_as(c.c_void_p) if np else logits, hidden, left)
        return logits if np else [list(logits[i * vocab : (i + 1) * vocab]) for i in range(len(rows))]

    def _step_into(self, tokens: Any, seqs: Sequence[int], rows: Sequence[int], logits: Any, hidden: Any, left: Any) -> None:
        """A step with C arrays of floats for its results, and for the hidden states that it takes and leaves (or ``None``)."""
        batch = _native_batch(tokens, seqs, rows)
        if hidden is not None:
            batch.hidden = hidden
        if left is not None:
            batch.hidden_out = left
        with self._use() as handle:
            out, room = c.cast(logits, c.c_void_p), len(rows) * self._info["columns"]
            self._lib.interruptible(handle, lambda: self._lib.step(handle, c.byref(batch), out, room), len(tokens) >= _batch.FEW)

    def _pieces(self, seq: int, tokens: Sequence[int], params: _GenParams) -> Iterator[Piece]:
        # Here, not in the iterator, so that errors come from the call itself.
        tokens = ffi.integers(tokens, "the prompt")
        return _batch.Generation(self._lib, _batch.start(self, seq, tokens, params), params.logprobs is not None, self._handle, len(tokens))

    def _begin(self, prompts: Sequence[Sequence[int]], max_tokens: Optional[int], params: Mapping[str, Any]) -> _batch.BatchGeneration:
        common = dict(params)
        each, max_batch = common.pop("each", None), common.pop("max_batch", None)
        return _batch.begin(self, prompts, each, max_batch, {"max_tokens": max_tokens, **common})

    def _facts(self) -> dict[str, Any]:
        """The manifest's members about texts."""
        if self._known is None:
            manifest = self.manifest
            names = {"generation": {}, "prompts": {}, "default_prompt": None, "classes": []}
            self._known = {name: manifest.get(name, missing) for name, missing in names.items()}
        return self._known

    def _defaults(self) -> Optional[dict[str, Any]]:
        """The model's own settings of generations; ``None`` for artifacts older than them."""
        defaults: Optional[dict[str, Any]] = self._facts()["generation"] if self._lib._minor >= 4 else None
        return defaults

    def _read_info(self) -> dict[str, Any]:
        info = ffi.ModelInfo()
        with self._use() as handle:
            self._lib.info(handle, c.byref(info))
            eos = self._lib.ints(lambda *out: self._lib.eos_tokens(handle, *out))
        names = [field[0] for field in info._fields_]
        result: dict[str, Any] = {name: getattr(info, name) for name in names if name not in ("size", "flags")}
        result["isa"] = _ISA.get(info.isa, f"sm{info.isa - _SM}" if info.isa > _SM else str(info.isa))
        result.pop("reserved")
        result["output"] = _OUTPUT.get(info.output, str(info.output))
        result["columns"] = info.columns or info.vocab
        result["normalized"] = bool(info.flags & ffi.IS_NORMALIZED)
        result["whole"] = bool(info.flags & ffi.IS_WHOLE)
        result["has_types"] = bool(info.flags & ffi.HAS_TYPES)
        result["needs_hidden"] = bool(info.flags & ffi.NEEDS_HIDDEN)
        result["keeps_hidden"] = bool(info.flags & ffi.HAS_HIDDEN)
        result["bos_token"] = info.bos_token if info.bos_token >= 0 else None
        result["eos_tokens"] = eos
        result["has_tokenizer"] = bool(info.flags & ffi.HAS_TOKENIZER)
        result["has_chat_template"] = bool(info.flags & ffi.HAS_CHAT_TEMPLATE)
        result["llmcc_version"] = self._lib.version().decode("ascii")
        return result

    def _use(self) -> _Use:
        return _Use(self)


def _entry(entry: Any) -> tuple[Session, Sequence[int]]:
    """A part of a batch: a session and its tokens."""
    from ._session import Session

    if not isinstance(entry, (tuple, list)) or len(entry) != 2 or not isinstance(entry[0], Session):
        raise TypeError(f"a batch holds pairs of a session and its tokens, not {entry!r:.80}")
    return entry[0], entry[1]


def _native_batch(tokens: Any, seqs: Sequence[int], rows: Sequence[int]) -> ffi.Batch:
    n = len(tokens)
    return ffi.Batch(
        n_tokens=n,
        tokens=tokens,
        seqs=(c.c_int32 * n)(*seqs),
        n_out=len(rows),
        out_rows=(c.c_uint32 * len(rows))(*rows),
    )


class _Use:
    """Keeps the model from being closed while its handle is in use."""

    def __init__(self, model: Model) -> None:
        self._model: Optional[Model] = model

    def __enter__(self) -> c.c_void_p:
        model = self._model
        assert model is not None
        with model._lock:
            if model._handle is None:
                raise LlmccError("the model is closed")
            model._busy += 1
            return model._handle

    def __exit__(self, *_: object) -> None:
        model, self._model = self._model, None
        if model is not None:
            with model._lock:
                model._busy -= 1


def _token(token: int) -> int:
    """A token id that fits C's type; C checks that the model has it."""
    token = _scalar(token)
    if isinstance(token, bool) or not isinstance(token, numbers.Integral):
        raise TypeError(f"token must be an integer, not {type(token).__name__}")
    if not 0 <= token < 2**31:
        raise ValueError(f"token {token} is outside the vocabulary")
    return int(token)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        message = "logits need NumPy: `pip install numpy`, or pass numpy=False to get lists"
        raise LlmccError(message, Status.UNSUPPORTED) from None
    return numpy
