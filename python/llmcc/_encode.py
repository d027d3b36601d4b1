"""Embeddings, similarity, classes and scores of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Literal, Optional, Sequence, Union, overload

from . import _batch, _classes, _embed, _pairs, _similarity, _tap
from ._arrays import numpy_of
from ._classes import Class
from ._errors import LlmccError, Status
from ._generate import Generate
from ._keywords import Embedding, spelled_out
from ._pairs import Activation, Ranked, RankedDocument
from ._params import natural as _natural
from ._rows import rows_of
from ._text import Prompt, Prompts

if TYPE_CHECKING:
    from ._arrays import Floats
    from ._keywords import Unpack

#: Texts or tokens, or rows that :meth:`Encode.embed` returned.
Comparable = Union[Prompt, Prompts, "Floats", Sequence[float], Sequence[Sequence[float]]]


class Encode(Generate):
    """The methods of embedders, classifiers and rerankers."""

    @overload
    def embed(self, texts: Union[Prompt, Prompts], *, numpy: Literal[True] = ..., **params: Unpack[Embedding]) -> Floats: ...

    @overload
    def embed(self, texts: Prompt, *, numpy: Literal[False], **params: Unpack[Embedding]) -> list[float]: ...  # type: ignore[overload-overlap]

    @overload
    def embed(self, texts: Prompts, *, numpy: Literal[False], **params: Unpack[Embedding]) -> list[list[float]]: ...

    @spelled_out(Embedding)
    def embed(
        self, texts: Union[Prompt, Prompts], *, numpy: bool = True, **params: Unpack[Embedding]
    ) -> Union[Floats, list[float], list[list[float]]]:
        """The embedding of a text (or of its tokens): float32 ``[columns]``; for a list of texts ``[len(texts), columns]``. A classifier gives the scores of its classes,
        before any softmax or sigmoid. A row does not depend on the others. Only models that were compiled for it have embeddings (``info["embed_columns"]``).

        :param prompt_name: name of the prompt (:attr:`prompts`) that is put before each text, as in sentence-transformers; by default the model's, if it has one.
        :param prompt: a text that is put before each text, in place of a prompt of the model; empty: none.
        :param normalize: whether rows have length 1; by default as the model says.
        :param pooling: how the rows of a text become one: ``"mean"``, ``"first"``, ``"last"``, ``"max"``, ``"root"`` or ``"weighted"``; by default as the model says.
        :param types: for texts given as tokens, the tokens' types (``info["has_types"]``), as :meth:`tokenize_pair` gives them; by default as the tokenizer gives a
            text alone, mostly 0.
        :param batch_size: how many texts are given to the model at once; by default all, with ``progress`` 32. Results do not depend on it.
        :param progress: show how many texts are done, by tqdm where it is installed.
        :param numpy: with False lists, for which NumPy is not needed.
        :raises LlmccError: the model has no embeddings, or a text is too long for it.
        :raises ValueError: the model has no prompt of this name; the message lists the names.
        """
        given, single = _batch.several(texts)
        rows: Union[Floats, list[list[float]]] = rows_of(_embed.embed(self, given, single, **params), (0, len(given)), self._info["embed_columns"], numpy)
        return rows[0] if single else rows

    def tap(
        self, texts: Union[Prompt, Prompts], *, full: bool = False, weights: Optional[Sequence[str]] = None, progress: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Moments of what the model multiplies by each weight of the checkpoint, when it reads texts (or their tokens): for calibration. The result maps each weight's name to a
        dictionary of NumPy arrays: ``count`` (inputs), ``squares`` (float64 ``[columns]``: sums of squares), ``min`` and ``max`` (float32 ``[columns]``); of a weight that has the matrices of
        all experts ``[experts]`` and ``[experts, columns]``. Each text is a sequence of its own. Sums are added up token by token in float64: they depend on nothing but the
        order of the tokens. Inputs are as the model computes them, before any rounding to fewer bits; weights that share an input share the arrays.

        Only artifacts compiled with ``--tap`` (``tap=True``) have moments.

        :param full: add ``products``: float64 ``[columns, columns]``, sums of products of two columns.
        :param weights: names of weights; by default all.
        :param progress: show how many texts are done, by tqdm where it is installed.
        :raises LlmccError: the artifact shows no inputs, a text is too long for the model, or an input is not finite.
        :raises ValueError: no product multiplies one of the weights.
        """
        given, _ = _batch.several(texts)
        return _tap.tap(self, given, full=full, weights=weights, progress=progress)

    @overload
    def similarity(
        self,
        a: Comparable,
        b: Optional[Comparable] = ...,
        *,
        similarity_fn_name: Optional[str] = ...,
        prompt_name: Optional[str] = ...,
        batch_size: Optional[int] = ...,
        progress: bool = ...,
        numpy: Literal[True] = ...,
    ) -> Floats: ...

    @overload
    def similarity(
        self,
        a: Comparable,
        b: Optional[Comparable] = ...,
        *,
        similarity_fn_name: Optional[str] = ...,
        prompt_name: Optional[str] = ...,
        batch_size: Optional[int] = ...,
        progress: bool = ...,
        numpy: Literal[False],
    ) -> list[list[float]]: ...

    def similarity(
        self,
        a: Comparable,
        b: Optional[Comparable] = None,
        *,
        similarity_fn_name: Optional[str] = None,
        prompt_name: Optional[str] = None,
        batch_size: Optional[int] = None,
        progress: bool = False,
        numpy: bool = True,
    ) -> Union[Floats, list[list[float]]]:
        """How similar each of ``a`` is to each of ``b``: float32 ``[len(a), len(b)]``; a single text or row counts as a list of one.

        Larger is more similar: distances are negative. The function is the model's (:attr:`similarity_fn_name`), as in sentence-transformers.

        :param a: texts (or their tokens), which are embedded, or rows: float ``[rows, columns]``, or one.
        :param b: the same; by default ``a``.
        :param similarity_fn_name: another function: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        :param prompt_name: as in :meth:`embed`, for texts on both sides. For prompts that differ (queries and documents), embed first, and compare rows.
        :param batch_size, progress: as in :meth:`embed`.
        :param numpy: with False lists, for which NumPy is not needed.
        :raises ValueError: rows of different widths; the function is not known.
        """
        name = _similarity.checked(similarity_fn_name, self.similarity_fn_name)
        np = numpy_of("similarities") if numpy else None

        def rows(given: Any) -> Any:
            given = _batch.listed(given)
            if _similarity.are_rows(given):
                return given
            return self.embed(_batch.several(given)[0], numpy=np is not None, prompt_name=prompt_name, batch_size=batch_size, progress=progress)  # type: ignore[call-overload]

        left = rows(a)
        right = left if b is None else rows(b)
        if np is not None:
            matrix: Floats = _similarity.numpy_matrix(np, left, right, name)
            return matrix
        return _similarity.matrix(_similarity.as_rows(left, "a"), _similarity.as_rows(right, "b"), name)

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, texts: Prompt, *, activation: Activation = ..., top_k: Optional[int] = ..., batch_size: Optional[int] = ..., progress: bool = ...
    ) -> list[Class]: ...

    @overload
    def classify(
        self, texts: Prompts, *, activation: Activation = ..., top_k: Optional[int] = ..., batch_size: Optional[int] = ..., progress: bool = ...
    ) -> list[list[Class]]: ...

    def classify(
        self,
        texts: Union[Prompt, Prompts],
        *,
        activation: Activation = "model",
        top_k: Optional[int] = None,
        batch_size: Optional[int] = None,
        progress: bool = False,
    ) -> Union[list[Class], list[list[Class]]]:
        """The classes of a text by their names, the best first, as tuples ``(name, score)``; for a list of texts a list of such lists. Only for classifiers.

        :param activation: function of the scores of a text. ``"model"`` (default), as the text classification of Transformers: by :attr:`problem_type` the softmax of one
            label's classes (probabilities, with the sum 1), the sigmoid of each of several labels, and for a regression the score itself; without it the sigmoid of a single
            class, and the softmax of several. ``"softmax"``, ``"sigmoid"``, or None: the scores themselves.
        :param top_k: only so many of the best classes; by default all.
        :param batch_size, progress: as in :meth:`embed`.
        :raises LlmccError: the model scores no classes.
        """
        if self._info["output"] != "scores":
            raise LlmccError("this model scores no classes; classify is for classifiers (...ForSequenceClassification)", Status.UNSUPPORTED)
        most = _pairs.most(top_k)
        function = _classes.activation_of(self, activation)
        given, single = _batch.several(texts)
        rows = _embed.embed(self, given, False, batch_size=batch_size, progress=progress, what="classify")
        scores, names = rows_of(rows, (0, len(given)), self._info["embed_columns"], numpy=False), self.classes
        found = [_classes.best_first(names, row, function)[:most] for row in scores]
        return found[0] if single else found

    @overload
    def score_pairs(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        activation: Activation = ...,
        truncate: bool = ...,
        batch_size: Optional[int] = ...,
        progress: bool = ...,
        numpy: Literal[True] = ...,
    ) -> Floats: ...

    @overload
    def score_pairs(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        activation: Activation = ...,
        truncate: bool = ...,
        batch_size: Optional[int] = ...,
        progress: bool = ...,
        numpy: Literal[False],
    ) -> list[list[float]]: ...

    def score_pairs(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        activation: Activation = None,
        truncate: bool = False,
        batch_size: Optional[int] = None,
        progress: bool = False,
        numpy: bool = True,
    ) -> Union[Floats, list[list[float]]]:
        """Scores of the classes of pairs of texts: float32 ``[len(pairs), columns]``. Only models with a head for classes have them (cross-encoders and rerankers,
        ``info["output"] == "scores"``). A pair does not depend on the others.

        :param activation: function of the scores: none (default), ``"sigmoid"``, ``"softmax"``, or ``"model"``: as sentence-transformers' ``CrossEncoder`` has it, the model's
            own, else the sigmoid of a single class. It does not change the order.
        :param truncate: cut pairs that are too long for the model, the longer text first (as ``CrossEncoder`` does); else they are an error.
        :param batch_size: how many pairs are given to the model at once; by default all, with ``progress`` 32. Results do not depend on it.
        :param progress: show how many pairs are done, by tqdm where it is installed.
        :param numpy: with False lists, for which NumPy is not needed.
        """
        rows = _pairs.score(self, pairs, activation, truncate, batch_size, progress)
        if not numpy:
            return rows
        found: Floats = numpy_of("rows").array(rows, dtype="float32").reshape(len(rows), self._info["embed_columns"])
        return found

    @overload
    def rank(
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
    def rank(
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

    def rank(
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
    ) -> Union[list[Ranked], list[RankedDocument]]:
        """The documents by how well they fit the query, the best first, as tuples ``(index, score)``; equal ones in their order. Only for models with one class.

        :param top_k: only so many of the best documents; by default all.
        :param return_documents: tuples ``(index, score, document)``.
        :param activation, truncate, batch_size, progress: as in :meth:`score_pairs`.
        :raises LlmccError: the model has several classes, or a pair is too long for it.
        """
        return _pairs.rank(self, query, documents, _pairs.most(top_k), return_documents, activation, truncate, batch_size, progress)

    def tokenize_pair(self, first: str, second: str, *, max_tokens: int = 0) -> tuple[list[int], list[int]]:
        """Tokens of a pair of texts as the model takes it, and their types. With ``max_tokens`` no more than these: the longer text is cut first."""
        return _pairs.tokenize(self, first, second, _natural(max_tokens, "max_tokens", 31))
