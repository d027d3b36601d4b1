"""llama.cpp through llama-cpp-python's bindings of its C API: `llama_decode` on batches, logits read in place.

A prompt of 16384 tokens would take it minutes, for each setting and format. There the first 512 are computed, and their part of the cache is copied behind itself, with its positions shifted, until
the cache holds as many as the prompt has: the steps that are measured cost the same."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

# Q4_0 and Q4_K_M as `llama-quantize` makes them keep a tied embedding and head in Q6_K; "Q4_0 pure" has them in Q4_0 too (`--pure`).
FORMATS = {"Q4_0": 4, "Q4_0 pure": 4, "Q4_K_M": 4, "Q8_0": 8, "F16": 16}
CONVERTER = "run"
_FTYPES = {"Q4_0": "Q4_0", "Q4_0 pure": "Q4_0", "Q4_K_M": "Q4_K_M", "Q8_0": "Q8_0"}
_KV = {"f16": "GGML_TYPE_F16", "int8": "GGML_TYPE_Q8_0"}
UBATCH = 512
COMPUTED = 4096  # as in `cases`


def supports(case: Any) -> bool:
    return True


def settings(case: Any, format: str) -> list[dict[str, Any]]:
    # A quantized V cache needs flash attention. For the first token it makes no difference worth a trial.
    return [{"flash_attention": True}] if case.kv == "int8" or case.kind == "load" else [{"flash_attention": True}, {"flash_attention": False}]


def stored(folder: Path, format: str, kv: str) -> Path:
    return folder / f"{format.replace(' ', '-')}.gguf"


def convert(checkpoint: Path, out: Path, format: str, group: int, kv: str) -> None:
    import gguf_file
    import llama_cpp

    if format == "F16":
        gguf_file.write(checkpoint, out)
        return
    source = stored(out.parent, "F16", kv)
    if not source.exists():
        gguf_file.write(checkpoint, source)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + _FTYPES[format])
    params.pure = format.endswith(" pure")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"llama.cpp cannot quantize {source} to {format}")


class Engine:
    def __init__(self, path: str, case: Any, context: int, flash_attention: bool) -> None:
        import llama_cpp as api

        self.api = api
        quiet = api.llama_log_callback(lambda level, text, user: None)
        self.keep = quiet
        api.llama_log_set(quiet, None)
        api.llama_backend_init()
        loading = api.llama_model_default_params()
        # It repacks 4-bit weights into memory of its own. With the file mapped as well, both would count, though the system can take the mapped pages back; opening is faster mapped.
        loading.load_mode = api.LLAMA_LOAD_MODE_MMAP if case.kind == "load" else api.LLAMA_LOAD_MODE_NONE
        self.model = api.llama_model_load_from_file(path.encode(), loading)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot open {path}")
        params = api.llama_context_default_params()
        params.n_ctx = case.sequences * -(-context // 256) * 256
        # A filled cache takes a second sequence, through which copies come.
        self.filled = case.depth and case.prompt > COMPUTED
        params.n_seq_max = 2 if self.filled else case.sequences
        params.kv_unified = self.filled
        params.n_batch = params.n_ubatch = UBATCH
        params.n_threads = params.n_threads_batch = case.threads
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash_attention else api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = getattr(api, _KV[case.kv])
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context")
        self.memory = api.llama_get_memory(self.context)
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(UBATCH, 0, 1)
        self.length = 0
        self.rows: list[int] = []

    def _decode(self, tokens: list[tuple[int, int, int, bool]]) -> None:
        """One batch of (token, position, sequence, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        status = self.api.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode failed with status {status}")
        self.api.llama_synchronize(self.context)

    def _row(self, index: int) -> Any:
        import numpy as np

        return np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, index), (self.vocab,))

    def prompt(self, prompts: list[list[int]]) -> None:
        self.api.llama_memory_clear(self.memory, False)
        if self.filled:
            self._fill(prompts[0])
            return
        self._compute(prompts)

    def _fill(self, prompt: list[int]) -> None:
        """The first tokens of a prompt, again and again."""
        api, first, copy = self.api, 0, 1
        self._compute([prompt[:UBATCH]])
        size = api.llama_state_seq_get_size(self.context, first)
        state = (ctypes.c_uint8 * size)()
        if api.llama_state_seq_get_data(self.context, state, size, first) != size:
            raise RuntimeError("llama.cpp does not give its cache out")
        while self.length < len(prompt):
            if api.llama_state_seq_set_data(self.context, state, size, copy) != size:
                raise RuntimeError("llama.cpp does not take a copy of its cache")
            api.llama_memory_seq_add(self.memory, copy, 0, -1, self.length)
            api.llama_memory_seq_cp(self.memory, copy, first, -1, -1)
            api.llama_memory_seq_rm(self.memory, copy, -1, -1)
            self.length += UBATCH
        if api.llama_memory_seq_pos_max(self.memory, first) + 1 != self.length:
            raise RuntimeError("llama.cpp has lost a part of its cache")

    def _compute(self, prompts: list[list[int]]) -> None:
        self.length = len(prompts[0])
        self.next = []
        # Batches of whole prompts, or pieces of one.
        share = max(1, UBATCH // self.length)
        for first in range(0, len(prompts), share):
            group = range(first, min(first + share, len(prompts)))
            tokens = [(prompts[s][p], p, s, p + 1 == self.length) for s in group for p in range(self.length)]
            for start in range(0, len(tokens), UBATCH):
                piece = tokens[start : start + UBATCH]
                self._decode(piece)
                self.next += [int(self._row(i).argmax()) for i, t in enumerate(piece) if t[3]]
        self.last = self._row(-1)

    def steps(self, n: int) -> None:
        for _ in range(n):
            self._decode([(token, self.length, s, True) for s, token in enumerate(self.next)])
            self.length += 1
            self.next = [int(self._row(i).argmax()) for i in range(len(self.next))]
        self.last = self._row(0)

    def logits(self) -> Any:
        return self.last


def describe() -> str:
    import llama_cpp as api

    features = [word.strip() for word in api.llama_print_system_info().decode().split("|") if word.strip().endswith("= 1")]
    how = ', '.join(f.removesuffix(' = 1') for f in features)
    return f"llama-cpp-python {api.__version__} ({how}): weights read, not mapped, but for `load`; prompts beyond {COMPUTED} tokens are copies of their first {UBATCH} in the cache"
