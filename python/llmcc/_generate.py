"""Generations and conversations of a model."""

from __future__ import annotations

import ctypes as c
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Sequence, Union, overload

from . import _batch, _ffi as ffi, _images, _score
from ._batch import Texts as _texts
from ._corpus import Corpus
from ._errors import LlmccError
from ._keywords import Generating, GeneratingMany, spelled_out
from ._params import GenParams as _GenParams, natural as _natural
from ._pickled import LoadedAdapter
from ._pieces import Completion, Piece
from ._progress import Progress
from ._text import Message, Prompt, Prompts, Text

if TYPE_CHECKING:
    from ._keywords import Unpack
    from ._session import Session


class Generate(Text):
    """The methods of a model that generate."""

    @overload
    def generate(self, prompt: Prompt, **params: Unpack[Generating]) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def generate(self, prompt: Prompts, **params: Unpack[GeneratingMany]) -> list[str]: ...

    @spelled_out(GeneratingMany)
    def generate(self, prompt: Union[Prompt, Prompts], **params: Unpack[GeneratingMany]) -> Union[str, list[str]]:
        """Continues ``prompt`` (text, or tokens) and returns the new text; for a list of prompts the list of texts.

        Prompts of a list generate together: up to ``max_batch`` at once, and where one ends, the next begins. They wait for room in the cache where there
        is none. Each text is the one it would have alone, bit for bit.

        Defaults of ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty`` and ``max_tokens`` come from the checkpoint's ``generation_config.json``
        (:attr:`generation_defaults`). Its other settings (banned tokens and words, stop strings...) hold, too. Without one, the most probable token is taken.

        :param max_tokens: most tokens to generate; by default the model's limit, else until it ends the text or its context is full.
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
        :param draft: guess next tokens, to give the same text in fewer steps: ``"lookup"`` guesses from the text so far, a smaller :class:`Model` with the same
            tokenizer by that model, ``"heads"`` by the model's draft heads (``compile(..., draft_head=True)``), texts by :meth:`corpus`, ``"jacobi"`` by the model's
            own predictions behind wrong guesses, ``"lookahead"`` by n-grams of these, ``"none"`` not at all. By default draft heads guess where the artifact
            has them.
        :param guesses: most tokens that are guessed for a step, up to 31; by default as many as suit.
        :param min_tokens: a token that ends the text is not chosen before so many tokens.
        :param presence_penalty: taken from the logits of tokens that were generated.
        :param frequency_penalty: taken from them for each time that they were generated.
        :param bad_words: texts, or lists of tokens, that the new text does not have. A text is banned with and without a space before it.
        :param json_schema: the text is JSON of this schema, a mapping or JSON (``{"type": "object"}``). It ends where it is complete; a small ``max_tokens`` cuts it off.
        :param regex: the whole text matches this regular expression.
        :param grammar: the text is one of this context-free grammar, as Lark writes it.
        :param choices: the text is one of these.
        :param images: the prompt's images, in the order of their markers (``<image>`` of LLaVA, ``<start_of_image>`` of Gemma 3); without markers they come first. An
            image is a path, the bytes of a file, a Pillow image or an array ``[height, width, 3]`` of uint8. A list of prompts takes a list of images for each. Only for models compiled
            ``with_image``.
        :param logprobs: see :meth:`complete`.
        :param each: with a list of prompts: a mapping per prompt with its own parameters (``{"seed": 3}``), which override the common ones.
        :param max_batch: with a list of prompts: how many generate at once (default 64, on a GPU 256).
        :param batch_size: the same as ``max_batch``, by its name in other functions.
        :param progress: with a list of prompts: show how many are done, by tqdm where it is installed.
        :raises LlmccError: a parameter is out of range, the model has no logits, or the cache is too small for a prompt.
        :raises TypeError: a parameter is unknown (the message names the right one) or of the wrong type.
        """
        prompts, single = _batch.several(prompt)
        if single:
            return "".join(_texts(self._pieces_of(prompts[0], params)))
        return [c.text for c in self.complete(prompts, **params)]

    @overload
    def complete(self, prompt: Prompt, *, prompt_logprobs: Optional[int] = None, **params: Unpack[Generating]) -> Completion: ...  # type: ignore[overload-overlap]

    @overload
    def complete(self, prompt: Prompts, *, prompt_logprobs: Optional[int] = None, **params: Unpack[GeneratingMany]) -> list[Completion]: ...

    @spelled_out(GeneratingMany)
    def complete(
        self, prompt: Union[Prompt, Prompts], *, prompt_logprobs: Optional[int] = None, **params: Unpack[GeneratingMany]
    ) -> Union[Completion, list[Completion]]:
        """As :meth:`generate`, but returns a :class:`Completion` with all results of the generation; for a list of prompts a list of them.

        :param logprobs: also give the log-probability of each token; the number says how many of the most probable tokens to give with each, and may be 0.
        :param prompt_logprobs: the same for the tokens of the prompt (which are evaluated once more for it).
        """
        texts, single = _batch.several(prompt)
        shown, given = (False, _batch.of_one(params)) if single else _batch.taken(params)
        if single and given.get("images") is not None:
            given = {**given, "images": [given["images"]]}
        prompts = _images.prepared(self, texts, given)
        self._check_prompt_logprobs(prompt_logprobs, given)
        with Progress(len(prompts), "generate", shown) as progress:
            results = _batch.complete(self._begin(prompts, given), prompts, progress)
        if prompt_logprobs is not None:
            results = self._with_prompt_logprobs(results, prompt_logprobs)
        return results[0] if single else results

    @overload
    def stream(self, prompt: Prompt, **params: Unpack[Generating]) -> Iterator[str]: ...  # type: ignore[overload-overlap]

    @overload
    def stream(self, prompt: Prompts, **params: Unpack[GeneratingMany]) -> Iterator[tuple[int, str]]: ...

    @spelled_out(GeneratingMany)
    def stream(self, prompt: Union[Prompt, Prompts], **params: Unpack[GeneratingMany]) -> Union[Iterator[str], Iterator[tuple[int, str]]]:
        """As :meth:`generate`, but yields the text as it comes, in whole characters; for a list of prompts pairs of a prompt's index and a text."""
        prompts, single = _batch.several(prompt)
        return _texts(self._pieces_of(prompts[0], params)) if single else _batch.BatchTexts(self.pieces(prompts, **params))

    @overload
    def pieces(self, prompt: Prompt, **params: Unpack[Generating]) -> Iterator[Piece]: ...  # type: ignore[overload-overlap]

    @overload
    def pieces(self, prompt: Prompts, **params: Unpack[GeneratingMany]) -> Iterator[tuple[int, Piece]]: ...

    @spelled_out(GeneratingMany)
    def pieces(self, prompt: Union[Prompt, Prompts], **params: Unpack[GeneratingMany]) -> Union[Iterator[Piece], Iterator[tuple[int, Piece]]]:
        """As :meth:`generate`, but yields every token as a :class:`Piece`; for a list of prompts pairs of a prompt's index and a piece.

        :param logprobs: as in :meth:`complete`.
        """
        prompts, single = _batch.several(prompt)
        if single:
            return self._pieces_of(prompts[0], params)
        shown, given = _batch.taken(params)
        pieces = self._begin(_images.prepared(self, prompts, given), given)
        return _batch.Counted(pieces, Progress(len(prompts), "generate", shown)) if shown else pieces

    def corpus(self, texts: Union[os.PathLike[str], Iterable[Prompt]]) -> Corpus:
        """Texts that generations guess from (``draft=``): tokens that most often followed the longest ending of the text so far there, of 2 to 16 tokens (REST,
        arXiv 2311.08252), and where nothing did as ``draft="lookup"``. It takes 8 bytes a token.

        :param texts: a list of texts or tokens, or a path: a text file, a ``.jsonl`` file (on each line a string, or an object with ``text`` or ``messages``), or a
            folder of such files.
        :raises LlmccError: it has more than 2**26 tokens, or tokens that the model does not have.
        :raises ValueError: a line of a ``.jsonl`` file has no text.
        """
        return Corpus(self, texts)

    def _pieces_of(self, prompt: Any, params: Mapping[str, Any]) -> Iterator[Piece]:
        given = _batch.of_one(params)
        images = given.pop("images", None)
        if images is None:
            tokens, rows = self.tokenize(prompt) if isinstance(prompt, str) else prompt, None
        else:
            tokens, rows = _images.encoded(self, prompt, images)
        return self._pieces(ffi.NEW_SEQ, tokens, _GenParams(image_rows=rows, **given))

    @spelled_out(Generating)
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template_vars: Optional[Mapping[str, object]] = None,
        **params: Unpack[Generating],
    ) -> str:
        """The model's answer to a conversation; the other parameters as in :meth:`generate`. For many turns, :meth:`session` saves work.

        :param messages: mappings with ``role`` and ``content``. A content may be a list of parts, ``{"type": "text", "text": ...}`` and, of models compiled ``with_image``,
            ``{"type": "image", "image": ...}`` with an image as for :meth:`generate`.
        :param tools: descriptions of functions, for templates that know them.
        :param template_vars: further variables of the chat template, as ``{"enable_thinking": False}``.
        """
        return "".join(self.chat_stream(messages, tools=tools, template_vars=template_vars, **params))

    @spelled_out(Generating)
    def chat_stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template_vars: Optional[Mapping[str, object]] = None,
        **params: Unpack[Generating],
    ) -> Iterator[str]:
        """As :meth:`chat`, but yields the text as it comes."""
        tokens, given = _images.with_conversation(self, messages, tools, template_vars, params)
        return self.stream(tokens, **given)

    def _conversation(
        self, messages: Sequence[Message], tools: Optional[Sequence[Mapping[str, Any]]], template_vars: Optional[Mapping[str, object]]
    ) -> list[int]:
        """Tokens of a conversation."""
        variables: Any = dict(template_vars or {})
        return self.tokenize(self.apply_chat_template(messages, tools, **variables), add_special=False)

    def session(self, *, adapter: Optional[int] = None, saved: Optional[bytes] = None) -> Session:
        """A sequence that keeps its cache between calls.

        :param adapter: the number of an adapter that :meth:`load_adapter` returned; 0 or None: none.
        :param saved: what :meth:`Session.save` has returned, in this process or another one with the same artifact: the session goes on from there. By default it is empty.
        """
        from ._session import Session

        if saved is not None:
            if adapter:
                raise LlmccError("a saved session has no adapter: give one of adapter and saved")
            return Session(self, *self._seq_load(saved))
        session = Session(self)
        if adapter is not None and adapter != 0:
            with self._use() as handle:
                self._lib.seq_set_adapter(handle, session._need_seq(), _natural(adapter, "adapter", 31))
        return session

    def load_adapter(self, path: Union[str, os.PathLike[str]]) -> int:
        """Loads an adapter of PEFT (LoRA, rsLoRA) from its folder, or from its file of tensors; returns its number: ``generate(..., adapter=number)``.
        Sequences with different adapters generate together. The model must have been compiled with room for it (``llmcc compile --lora-slots``)."""
        data, adapter = os.fsencode(path), c.c_int32()
        before = LoadedAdapter.at(os.path.abspath(os.fspath(path)))
        with self._use() as handle:
            self._lib.interruptible(handle, lambda: self._lib.adapter_load(handle, data, len(data), c.byref(adapter)))
        self._adapters[adapter.value] = before
        return adapter.value

    def unload_adapter(self, adapter: int) -> None:
        """Unloads an adapter. An error as long as a generation or session uses it."""
        with self._use() as handle:
            self._lib.adapter_unload(handle, _natural(adapter, "adapter", 31))
        self._adapters.pop(int(adapter), None)

    def _check_prompt_logprobs(self, prompt_logprobs: Optional[int], params: Mapping[str, Any]) -> None:
        """Refuses log-probabilities of prompts where another model would give them."""
        if prompt_logprobs is None:
            return
        _natural(prompt_logprobs, "prompt_logprobs", 31)
        if any(p.get("adapter", 0) != 0 for p in [params, *(params.get("each") or ())]):
            raise LlmccError("prompt_logprobs are those of the model without an adapter; use a session with the adapter, and its logits")

    def _with_prompt_logprobs(self, results: Sequence[Completion], top: int) -> list[Completion]:
        """The same generations with log-probabilities of their prompts, which are evaluated once more."""
        judged = _score.score(self, [(r.prompt_tokens, 1) for r in results], top)
        return [replace(r, prompt_logprobs=[None, *logprobs]) for r, logprobs in zip(results, judged)]

    def _pieces(self, seq: int, tokens: Sequence[int], params: _GenParams) -> Iterator[Piece]:
        # Here, not in the iterator, so that errors come from the call itself.
        tokens = ffi.integers(tokens, "the prompt")
        return _batch.Generation(self._lib, _batch.start(self, seq, tokens, params), params.logprobs is not None, self._handle, len(tokens))

    def _begin(self, prompts: Sequence[Sequence[int]], params: Mapping[str, Any]) -> _batch.BatchGeneration:
        common = dict(params)
        each, max_batch = common.pop("each", None), common.pop("max_batch", None)
        return _batch.begin(self, prompts, each, max_batch, common)
