"""Models: artifacts that are open for use."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator, Optional, Union

from . import _describe, _pickled
from ._awaits import Awaits


def load(
    path: Union[str, os.PathLike[str]],
    threads: Optional[int] = None,
    max_tokens: Optional[int] = None,
    *,
    max_batch_tokens: Optional[int] = None,
    profile: bool = False,
    pin: bool = False,
    portable: bool = False,
    key: Union[None, str, os.PathLike[str]] = None,
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
    :param key: a public key of Ed25519 in PEM: every byte must be as it was signed (``llmcc compile --sign``) with the private one. The program ``llmcc``
        checks that before anything of the file is executed.
    :raises LlmccError: the file is missing, is no artifact, or cannot run here.
    """
    return Model(path, threads, max_tokens, max_batch_tokens=max_batch_tokens, profile=profile, pin=pin, portable=portable, key=key)


class Model(Awaits):
    """An open artifact. Close it, or use it in a ``with`` statement. Methods may be called from several threads; they wait for each other.

    A pickle of a model holds the path of its artifact, how it was opened, and its digest: where it is loaded, in another process say, the artifact is opened again.
    """

    _remedy = "share it (its methods may be called from several threads), or open it once more with llmcc.load(model.path): models of one file share its weights"

    def __repr__(self) -> str:
        return _describe.line(self)

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return _describe.html(self)

    def __rich_repr__(self) -> Iterator[tuple[str, str]]:
        """Names and values for rich."""
        yield from _describe.facts(self)

    def __copy__(self) -> Model:
        raise self._uncopied("copied")

    def __deepcopy__(self, memo: object) -> Model:
        raise self._uncopied("copied")

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _pickled.restored, _pickled.saved(self)
