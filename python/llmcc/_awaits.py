"""Methods of a model for ``asyncio``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterable, Literal, Mapping, Optional, Sequence, TypeVar, Union, overload

from . import _batch
from ._audio import Audio
from ._classes import Class
from ._keywords import Embedding, Generating, GeneratingMany, Judging, spelled_out
from ._pairs import Activation, Ranked, RankedDocument
from ._pieces import Completion, Piece, TokenLogprob
from ._progress import Progress
from ._text import Message, Prompt, Prompts

if TYPE_CHECKING:
    from ._arrays import Floats
    from ._keywords import Unpack
    # (Imported by the first await: asyncio takes long to import.)
    from ._worker import Stream, Worker

T = TypeVar("T")


@asynccontextmanager
async def _closing(pieces: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Closes an asynchronous generator in the end: one that is left is closed some time later."""
    try:
        yield pieces
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]


class Awaits(Audio):
    """The methods of a model that are awaited: the work is done in another thread, and the event loop goes on.

    All awaits of a model share one thread. Generations that are awaited at the same time go on together, a step of the model for a token of each; other
    calls are made one after the other, between two steps. A cancelled await ends its work within a step, and waits until it has ended.
    """

    @property
    def _worker(self) -> Worker:
        from ._worker import Worker

        # (One operation, so that threads agree on it.)
        made: Worker = self.__dict__.setdefault("_worker_made", Worker(_batch.default_batch(self._info["isa"])))
        return made

    async def _call(self, work: Callable[[], T]) -> T:
        """The result of ``work()``, made by the model's thread."""
        from ._worker import call

        return await call(self._worker, work)

    def _stream(self, n: int, shown: bool) -> Stream:
        """For the generations of ``n`` prompts."""
        from ._worker import Stream

        return Stream(self._worker, Progress(n, "generate", shown))

    @overload
    async def agenerate(self, prompt: Prompt, **params: Unpack[Generating]) -> str: ...  # type: ignore[overload-overlap]

    @overload
    async def agenerate(self, prompt: Prompts, **params: Unpack[GeneratingMany]) -> list[str]: ...

    @spelled_out(GeneratingMany)
    async def agenerate(self, prompt: Union[Prompt, Prompts], **params: Unpack[GeneratingMany]) -> Union[str, list[str]]:
        """As :meth:`generate`, awaited. Several tasks that await it generate together, as a list of prompts does."""
        done = await self.acomplete(prompt, **params)  # type: ignore[arg-type]
        return [completion.text for completion in done] if isinstance(done, list) else done.text

    @overload
    async def acomplete(self, prompt: Prompt, *, prompt_logprobs: Optional[int] = None, **params: Unpack[Generating]) -> Completion: ...  # type: ignore[overload-overlap]

    @overload
    async def acomplete(self, prompt: Prompts, *, prompt_logprobs: Optional[int] = None, **params: Unpack[GeneratingMany]) -> list[Completion]: ...

    @spelled_out(GeneratingMany)
    async def acomplete(
        self, prompt: Union[Prompt, Prompts], *, prompt_logprobs: Optional[int] = None, **params: Unpack[GeneratingMany]
    ) -> Union[Completion, list[Completion]]:
        """As :meth:`complete`, awaited."""
        given, single = _batch.several(prompt)
        shown, common = (False, _batch.of_one(params)) if single else _batch.taken(params)
        self._check_prompt_logprobs(prompt_logprobs, common)
        collected: list[list[Piece]] = [[] for _ in given]
        async with self._stream(len(given), shown) as stream:
            prompts = await stream.begin(self, given, common)
            async for index, piece in stream:
                collected[index].append(piece)
        results = [_batch.completion(tokens, pieces) for tokens, pieces in zip(prompts, collected)]
        if prompt_logprobs is not None:
            top = prompt_logprobs
            results = await self._call(lambda: self._with_prompt_logprobs(results, top))
        return results[0] if single else results

    @overload
    def astream(self, prompt: Prompt, **params: Unpack[Generating]) -> AsyncIterator[str]: ...  # type: ignore[overload-overlap]

    @overload
    def astream(self, prompt: Prompts, **params: Unpack[GeneratingMany]) -> AsyncIterator[tuple[int, str]]: ...

    @spelled_out(GeneratingMany)
    def astream(self, prompt: Union[Prompt, Prompts], **params: Unpack[GeneratingMany]) -> Union[AsyncIterator[str], AsyncIterator[tuple[int, str]]]:
        """As :meth:`stream`, for ``async for``. The model goes on while the loop is busy with a piece; leaving the loop ends the generation."""
        prompts, single = _batch.several(prompt)
        return self._atexts(prompts, params) if single else self._aindexed(prompts, params)

    async def _atexts(self, prompts: Sequence[Prompt], params: Mapping[str, Any]) -> AsyncIterator[str]:
        given = _batch.of_one(params)
        async with self._stream(len(prompts), False) as stream:
            await stream.begin(self, prompts, given)
            async for _, piece in stream:
                if piece.text:
                    yield piece.text

    async def _aindexed(self, prompts: Sequence[Prompt], params: Mapping[str, Any]) -> AsyncIterator[tuple[int, str]]:
        shown, given = _batch.taken(params)
        async with self._stream(len(prompts), shown) as stream:
            await stream.begin(self, prompts, given)
            async for index, piece in stream:
                if piece.text:
                    yield index, piece.text

    @spelled_out(Generating)
    async def achat(
        self,
        messages: Sequence[Message],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template_vars: Optional[Mapping[str, object]] = None,
        **params: Unpack[Generating],
    ) -> str:
        """As :meth:`chat`, awaited."""
        prompt = await self._call(lambda: self._conversation(messages, tools, template_vars))
        return await self.agenerate(prompt, **params)

    @spelled_out(Generating)
    async def achat_stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template_vars: Optional[Mapping[str, object]] = None,
        **params: Unpack[Generating],
    ) -> AsyncIterator[str]:
        """As :meth:`chat_stream`, for ``async for``."""
        prompt = await self._call(lambda: self._conversation(messages, tools, template_vars))
        async with _closing(self.astream(prompt, **params)) as texts:
            async for text in texts:
                yield text

    @overload
    async def aembed(self, texts: Union[Prompt, Prompts], *, numpy: Literal[True] = ..., **params: Unpack[Embedding]) -> Floats: ...

    @overload
    async def aembed(self, texts: Prompt, *, numpy: Literal[False], **params: Unpack[Embedding]) -> list[float]: ...  # type: ignore[overload-overlap]

    @overload
    async def aembed(self, texts: Prompts, *, numpy: Literal[False], **params: Unpack[Embedding]) -> list[list[float]]: ...

    @spelled_out(Embedding)
    async def aembed(self, texts: Union[Prompt, Prompts], *, numpy: bool = True, **params: Unpack[Embedding]) -> Any:
        """As :meth:`embed`, awaited."""
        return await self._call(lambda: self.embed(texts, numpy=numpy, **params))  # type: ignore[call-overload]

    @overload
    async def aclassify(  # type: ignore[overload-overlap]
        self, texts: Prompt, *, activation: Activation = ..., top_k: Optional[int] = ..., batch_size: Optional[int] = ..., progress: bool = ...
    ) -> list[Class]: ...

    @overload
    async def aclassify(
        self, texts: Prompts, *, activation: Activation = ..., top_k: Optional[int] = ..., batch_size: Optional[int] = ..., progress: bool = ...
    ) -> list[list[Class]]: ...

    async def aclassify(
        self,
        texts: Union[Prompt, Prompts],
        *,
        activation: Activation = "model",
        top_k: Optional[int] = None,
        batch_size: Optional[int] = None,
        progress: bool = False,
    ) -> Any:
        """As :meth:`classify`, awaited."""
        given: Any = texts
        return await self._call(lambda: self.classify(given, activation=activation, top_k=top_k, batch_size=batch_size, progress=progress))

    @overload
    async def arank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: Optional[int] = ...,
        return_documents: Literal[False] = ...,
        activation: Activation = ...,
        truncate: bool = ...,
        batch_size: Optional[int] = ...,
        progress: bool = ...,
    ) -> list[Ranked]: ...

    @overload
    async def arank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: Optional[int] = ...,
        return_documents: Literal[True],
        activation: Activation = ...,
        truncate: bool = ...,
        batch_size: Optional[int] = ...,
        progress: bool = ...,
    ) -> list[RankedDocument]: ...

    async def arank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: Optional[int] = None,
        return_documents: bool = False,
        activation: Activation = None,
        truncate: bool = False,
        batch_size: Optional[int] = None,
        progress: bool = False,
    ) -> Any:
        """As :meth:`rank`, awaited."""
        wanted: Any = return_documents
        return await self._call(
            lambda: self.rank(
                query, documents, top_k=top_k, return_documents=wanted, activation=activation, truncate=truncate, batch_size=batch_size, progress=progress
            )
        )

    @overload
    async def ascore(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, prompt: Prompt, continuation: Optional[Prompt] = None, *, top: int = 0, **params: Unpack[Judging]
    ) -> list[TokenLogprob]: ...

    @overload
    async def ascore(
        self, prompt: Prompts, continuation: Optional[Prompts] = None, *, top: int = 0, **params: Unpack[Judging]
    ) -> list[list[TokenLogprob]]: ...

    @spelled_out(Judging)
    async def ascore(
        self, prompt: Union[Prompt, Prompts], continuation: Union[Prompt, Prompts, None] = None, *, top: int = 0, **params: Unpack[Judging]
    ) -> Any:
        """As :meth:`score`, awaited."""
        given: Any = prompt
        rest: Any = continuation
        return await self._call(lambda: self.score(given, rest, top=top, **params))
