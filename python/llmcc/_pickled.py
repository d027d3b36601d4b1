"""Models in pickles: the path of the artifact, how it was opened, and which one it was."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import LlmccError, Status
from ._integrity import root_of

if TYPE_CHECKING:
    from ._handle import Opened

#: The files of a folder of PEFT that a loaded adapter depends on.
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")


class LoadedAdapter(NamedTuple):
    """An adapter as it was when it was loaded."""

    #: Its folder or file.
    path: str
    #: Name, size and time of each of its files.
    stamps: tuple[tuple[str, int, int], ...]

    @classmethod
    def at(cls, path: str) -> LoadedAdapter:
        """The adapter at a path."""
        return cls(path, tuple(_stamp(file) for file in _files(path)))


class SavedAdapter(NamedTuple):
    """An adapter in a pickle."""

    #: Its number.
    number: int
    #: Its folder or file.
    path: str
    #: SHA-256 of its files.
    digest: str


def saved(model: Opened) -> tuple[type[Opened], str, dict[str, Any], str, tuple[SavedAdapter, ...]]:
    """Arguments of :func:`restored` for an open model.

    :raises LlmccError: the model is closed, or the files of an adapter have changed since it was loaded.
    """
    if getattr(model, "_handle", None) is None:
        raise LlmccError("the model is closed: a pickle would open it; pickle its path")
    adapters = []
    for number, adapter in sorted(model._adapters.items()):
        if LoadedAdapter.at(adapter.path) != adapter:
            raise LlmccError(f"the adapter {adapter.path} has changed since it was loaded, and would be another one elsewhere; unload it first", Status.ARTIFACT)
        adapters.append(SavedAdapter(number, adapter.path, _digest(adapter.path)))
    given = {name: value for name, value in model._options.items() if value not in (None, False)}
    return type(model), model.path, given, model._lib._root.hex(), tuple(adapters)


def restored(kind: type[Opened], path: str, options: dict[str, Any], root: str, adapters: tuple[SavedAdapter, ...]) -> Opened:
    """The model of a pickle, opened again.

    :raises LlmccError: the artifact or an adapter is missing, or is another one than when the pickle was made.
    """
    # The code of another artifact is not even loaded.
    try:
        found = root_of(path).hex()
    except (OSError, ValueError):
        # Opening says what is wrong.
        found = root
    _need_same(path, root, found)
    model = kind(path, **options)
    try:
        _need_same(path, root, model._lib._root.hex())
        _load(model, {adapter.number: adapter for adapter in adapters})
    except BaseException:
        model.close()
        raise
    return model


def _need_same(path: str, pickled: str, found: str) -> None:
    if pickled != found:
        message = f"{path} is not the artifact that was pickled: its digest is {found[:16]}, the pickle's {pickled[:16]}; pickle the model anew, or put the old artifact back"
        raise LlmccError(message, Status.ARTIFACT)


def _load(model: Any, adapters: dict[int, SavedAdapter]) -> None:
    """Loads adapters under the numbers that they had."""
    for adapter in adapters.values():
        # (Loading a missing one says so.)
        if os.path.exists(adapter.path) and _digest(adapter.path) != adapter.digest:
            raise LlmccError(f"the adapter {adapter.path} has changed since the model was pickled; pickle the model anew", Status.ARTIFACT)
    gaps = []
    for number in range(1, max(adapters, default=0) + 1):
        # Numbers are given in order: where one is free, another adapter takes its place meanwhile.
        adapter = adapters.get(number) or adapters[min(n for n in adapters if n > number)]
        given = model.load_adapter(adapter.path)
        if given != number:
            raise LlmccError(f"the adapter {adapter.path} had the number {number}, and has {given} now", Status.INTERNAL)
        if number not in adapters:
            gaps.append(number)
    for number in gaps:
        model.unload_adapter(number)


def _files(path: str) -> list[str]:
    return [file for name in _ADAPTER_FILES if os.path.isfile(file := os.path.join(path, name))] if os.path.isdir(path) else [path]


def _stamp(file: str) -> tuple[str, int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return file, -1, -1
    return file, found.st_size, found.st_mtime_ns


def _digest(path: str) -> str:
    """SHA-256 of the files of an adapter; of one that is missing, of nothing."""
    digest = sha256()
    for file in _files(path):
        try:
            with open(file, "rb") as source:
                while block := source.read(1 << 20):
                    digest.update(block)
        except OSError:
            continue
    return digest.hexdigest()
