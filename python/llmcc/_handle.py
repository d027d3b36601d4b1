"""Open artifacts: opening, closing, facts about the model."""

from __future__ import annotations

import ctypes as c
import json
import os
import threading
from typing import Any, Mapping, Optional, Union

from . import _ffi as ffi
from . import _signature
from ._errors import Closing, LlmccError, Status
from ._params import positive as _positive
from ._pickled import LoadedAdapter

_OUTPUT = {0: "logits", 1: "embedding", 2: "scores"}
#: Added to a GPU's compute capability times ten, it gives the number of the GPU's version.
_SM = 1000
_ISA = {1: "x86-64", 3: "x86-64-v3", 4: "x86-64-v4", 64: "aarch64"}

#: Members of the manifest that are often asked for, and what stands for missing ones.
_FACTS: Mapping[str, Any] = {
    "model": None,
    "weights": {},
    "options": {},
    "versions": [],
    "generation": {},
    "prompts": {},
    "default_prompt": None,
    "similarity": None,
    "classes": [],
    "problem_type": None,
    "pair_activation": None,
}


class Opened(Closing):
    """An open artifact."""

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
        key: Union[None, str, os.PathLike[str]] = None,
    ) -> None:
        self._handle: Optional[c.c_void_p] = None
        self._lock = threading.Lock()
        self._busy = 0
        # The tokenizer was read.
        self._has_read = False
        self._known: Optional[dict[str, Any]] = None
        # To open it again in another process.
        self._options: dict[str, Any] = {
            "threads": threads,
            "max_tokens": max_tokens,
            "max_batch_tokens": max_batch_tokens,
            "profile": profile,
            "pin": pin,
            "portable": portable,
            "key": None if key is None else os.path.abspath(os.fspath(key)),
        }
        self._adapters: dict[int, LoadedAdapter] = {}
        self.path: str = os.path.abspath(os.fspath(path))
        options = ffi.Options(
            threads=_positive(threads, "threads", 32),
            max_tokens=_positive(max_tokens, "max_tokens", 64),
            max_batch_tokens=_positive(max_batch_tokens, "max_batch_tokens", 64),
            flags=(ffi.OPEN_PROFILE if profile else 0) | (ffi.OPEN_PIN if pin else 0) | (ffi.OPEN_PORTABLE if portable else 0),
        )
        if self._options["key"] is not None:
            _signature.check(self.path, self._options["key"])
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

    def __del__(self) -> None:
        # Set before anything can fail in __init__, but __init__ may not have run at all.
        if getattr(self, "_handle", None) is not None:
            self.close()

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
        ``entries`` (computations that the artifact has), ``embed_columns`` of a row that ``embed`` gives (0: it makes none),
        ``normalized`` (embeddings have length 1), ``whole`` (a sequence is computed in one step), ``has_types`` (tokens of the second of two
        texts are of another type), ``sees`` (prompts may have images)."""
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

    @property
    def similarity_fn_name(self) -> str:
        """How :meth:`similarity` compares rows: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, as ``config_sentence_transformers.json`` says; without it cosine."""
        name: Optional[str] = self._facts()["similarity"]
        return "cosine" if name is None else name

    @property
    def problem_type(self) -> Optional[str]:
        """The ``problem_type`` of a classifier's ``config.json``: ``"single_label_classification"``, ``"multi_label_classification"``, ``"regression"``, or none."""
        name: Optional[str] = self._facts()["problem_type"]
        return name

    def stats(self) -> dict[str, Any]:
        """Memory in use and, with ``profile=True``, the time of every kernel."""
        with self._use() as handle:
            result: dict[str, Any] = json.loads(self._lib.text(lambda *out: self._lib.stats(handle, *out)))
        return result

    def _facts(self) -> dict[str, Any]:
        """Members of the manifest that do not change, read once."""
        if self._known is None:
            manifest = self.manifest
            self._known = {name: manifest.get(name, missing) for name, missing in _FACTS.items()}
            # (A list as long as the model.)
            self._known["weights"].pop("tensors", None)
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
        result: dict[str, Any] = {name: getattr(info, name) for name in names if name not in ("size", "flags", "reserved")}
        result["isa"] = _ISA.get(info.isa, f"sm{info.isa - _SM}" if info.isa > _SM else str(info.isa))
        result["output"] = _OUTPUT.get(info.output, str(info.output))
        result["columns"] = info.columns or info.vocab
        if self._lib._minor < 5:
            result["entries"], result["embed_columns"] = 1, 0 if result["output"] == "logits" else result["columns"]
        result["normalized"] = bool(info.flags & ffi.IS_NORMALIZED)
        result["whole"] = bool(info.flags & ffi.IS_WHOLE)
        result["has_types"] = bool(info.flags & ffi.HAS_TYPES)
        result["needs_hidden"] = bool(info.flags & ffi.NEEDS_HIDDEN)
        result["keeps_hidden"] = bool(info.flags & ffi.HAS_HIDDEN)
        result["needs_source"] = bool(info.flags & ffi.NEEDS_SOURCE)
        result["hears"] = bool(info.flags & ffi.HEARS)
        result["sees"] = bool(info.flags & ffi.SEES)
        result["image_token"] = info.image_token if result["sees"] and self._lib._minor >= 8 else None
        result["bos_token"] = info.bos_token if info.bos_token >= 0 else None
        result["eos_tokens"] = eos
        result["has_tokenizer"] = bool(info.flags & ffi.HAS_TOKENIZER)
        result["has_chat_template"] = bool(info.flags & ffi.HAS_CHAT_TEMPLATE)
        result["llmcc_version"] = self._lib.version().decode("ascii")
        return result

    def _use(self) -> _Use:
        return _Use(self)


class _Use:
    """Keeps the model from being closed while its handle is in use."""

    def __init__(self, model: Opened) -> None:
        self._model: Optional[Opened] = model

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
