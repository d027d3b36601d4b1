"""Tests without an artifact: structures, checks of arguments, errors, compiling."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import llmcc
from llmcc import _batch
from llmcc import _ffi as ffi
from llmcc._compile import arguments
from llmcc._params import GenParams as _GenParams

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "llmcc.h"
STRUCTURES = {
    "llmcc_tap_info": ffi.TapInfo,
    "llmcc_moments": ffi.Moments,
    "llmcc_options": ffi.Options,
    "llmcc_model_info": ffi.ModelInfo,
    "llmcc_batch": ffi.Batch,
    "llmcc_embed_rows": ffi.EmbedRows,
    "llmcc_pair": ffi.Pair,
    "llmcc_logit_bias": ffi.LogitBias,
    "llmcc_sampling": ffi.Sampling,
    "llmcc_gen_params": ffi.GenParams,
    "llmcc_piece": ffi.Piece,
    "llmcc_gen_stats_t": ffi.GenStats,
    "llmcc_engine_options": ffi.EngineOptions,
    "llmcc_request": ffi.EngineRequest,
    "llmcc_event": ffi.EngineEvent,
}
CONSTANTS = {
    "LLMCC_NEW_SEQ": ffi.NEW_SEQ,
    "LLMCC_OPEN_PROFILE": ffi.OPEN_PROFILE,
    "LLMCC_ADD_SPECIAL": ffi.ADD_SPECIAL,
    "LLMCC_SHOW_SPECIAL": ffi.SHOW_SPECIAL,
    "LLMCC_GEN_IGNORE_EOS": ffi.GEN_IGNORE_EOS,
    "LLMCC_GEN_NO_TEXT": ffi.GEN_NO_TEXT,
    "LLMCC_GEN_SHOW_SPECIAL": ffi.GEN_SHOW_SPECIAL,
    "LLMCC_GEN_LOGPROBS": ffi.GEN_LOGPROBS,
    "LLMCC_GEN_NO_DEFAULTS": ffi.GEN_NO_DEFAULTS,
    "LLMCC_NO_PROMPT": ffi.NO_PROMPT,
    "LLMCC_TOKEN_SPECIAL": ffi.TOKEN_SPECIAL,
    "LLMCC_TOKEN_BYTE": ffi.TOKEN_BYTE,
    "LLMCC_TOKEN_ENDS": ffi.TOKEN_ENDS,
    "LLMCC_TOKEN_UNUSED": ffi.TOKEN_UNUSED,
    "LLMCC_HAS_TOKENIZER": ffi.HAS_TOKENIZER,
    "LLMCC_HAS_CHAT_TEMPLATE": ffi.HAS_CHAT_TEMPLATE,
    "LLMCC_IS_NORMALIZED": ffi.IS_NORMALIZED,
    "LLMCC_IS_WHOLE": ffi.IS_WHOLE,
    "LLMCC_HAS_TYPES": ffi.HAS_TYPES,
    "LLMCC_PAIR_TRUNCATE": ffi.PAIR_TRUNCATE,
    "LLMCC_ENGINE_NO_PREFIXES": ffi.ENGINE_NO_PREFIXES,
    "LLMCC_EMBED_NORMALIZE": ffi.EMBED_NORMALIZE,
    "LLMCC_EMBED_RAW": ffi.EMBED_RAW,
    **{f"LLMCC_POOL_{name.upper()}": number for name, number in ffi.POOLINGS.items()},
    "LLMCC_ABI_VERSION": ffi.ABI_MAJOR << 16 | ffi.ABI_MINOR,
    **{f"LLMCC_E_{s.name}": int(s) for s in llmcc.Status if s != llmcc.Status.OK},
}


@pytest.mark.skipif(not HEADER.exists() or not shutil.which("cc"), reason="needs the repository's header and a C compiler")
def test_structures_agree_with_the_header(tmp_path: Path) -> None:
    lines = ['#include "llmcc.h"', "#include <stddef.h>"]
    for name, structure in STRUCTURES.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
        for field, *_ in structure._fields_:
            offset = getattr(structure, field).offset
            lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
    lines += [f'_Static_assert(({name}) == {value}, "{name}");' for name, value in CONSTANTS.items()]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    subprocess.run(["cc", "-std=c11", "-fsyntax-only", "-I", str(HEADER.parent), str(source)], check=True)


@pytest.mark.skipif(not HEADER.exists(), reason="needs the repository's header")
def test_functions_are_declared() -> None:
    header = HEADER.read_text()
    for name in [*ffi._FUNCTIONS, *(name for functions in ffi._SINCE.values() for name in functions)]:
        assert f"{name}(" in header


def test_gpus_generate_more_at_once() -> None:
    assert [_batch.default_batch(isa) for isa in ("x86-64-v4", "aarch64", "sm90")] == [64, 64, 256]


def test_options_become_arguments() -> None:
    options = {"target": "native", "w4": True, "w8": False, "max_context": 2048, "kv": None}
    assert arguments(options) == ["--target=native", "--w4", "--max-context=2048"]
    assert arguments({"lora": ["a", Path("b")], "draft_head": 0}) == ["--lora=a", "--lora=b", "--draft-head=0"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_compile_runs_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llmcc"
    program.write_text('#!/bin/sh\nif [ "$2" = bad ]; then echo "error: no config.json in bad" >&2; exit 1; fi\necho "$@" > "$5"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("LLMCC", str(program))
    out = tmp_path / "m.so"
    assert llmcc.compile("dir", out, w4=True) == str(out)
    assert out.read_text().split() == ["compile", "dir", "--w4", "-o", str(out)]
    with pytest.raises(llmcc.LlmccError, match="no config.json in bad"):
        llmcc.compile("bad", out)
    monkeypatch.setenv("LLMCC", str(tmp_path / "missing"))
    with pytest.raises(llmcc.LlmccError, match="cannot run"):
        llmcc.compile("dir", out)
    monkeypatch.delenv("LLMCC")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(llmcc.LlmccError, match="nor in PATH"):
        llmcc.compile("dir", out)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_what_the_compiler_says_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llmcc"
    program.write_text("#!/bin/sh\necho 'warning: a token is odd' >&2\necho 'm.so: 1 MiB' >&2\necho '  warning     config.json: a is 3' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("LLMCC", str(program))
    with pytest.warns(UserWarning) as warned:
        made = llmcc.compile("dir", tmp_path / "m.so")
    assert [str(w.message) for w in warned] == ["a token is odd", "config.json: a is 3"]
    assert isinstance(made, str) and made == str(tmp_path / "m.so") and "m.so: 1 MiB" in made.report


def test_checkpoints_are_to_be_compiled_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(llmcc.LlmccError, match="is a checkpoint, not an artifact: compile it first"):
        llmcc.load(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(llmcc.LlmccError, match="hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B"):
        llmcc.load("meta-llama/Llama-3.2-1B")


def test_files_that_are_no_artifacts(tmp_path: Path) -> None:
    with pytest.raises(llmcc.LlmccError, match="does not exist") as caught:
        llmcc.load(tmp_path / "missing.so")
    assert caught.value.status == llmcc.Status.ARTIFACT
    text = tmp_path / "text.so"
    text.write_text("no ELF")
    with pytest.raises(llmcc.LlmccError, match="not an artifact"):
        llmcc.load(text)
    libraries = [line.split()[-1] for line in open("/proc/self/maps") if "/libc.so" in line] if os.path.exists("/proc/self/maps") else []
    if libraries:
        with pytest.raises(llmcc.LlmccError, match="not an artifact"):
            llmcc.load(libraries[0])


@pytest.mark.parametrize(
    "bad",
    [
        {"threads": 0},
        {"threads": -1},
        {"threads": 1.5},
        {"threads": True},
        {"max_tokens": 2**64},
        {"max_batch_tokens": 0},
    ],
)
def test_bad_options(bad: dict, tmp_path: Path) -> None:
    with pytest.raises(llmcc.LlmccError):
        llmcc.Model.__init__(object.__new__(llmcc.Model), tmp_path / "missing.so", **bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"top_k": -1},
        {"seed": -1},
        {"seed": 2**64},
        {"stop": "a\0b"},
        {"stop": [3]},
        {"stop_tokens": ["x"]},
        {"stop_tokens": [2**31]},
    ],
)
def test_bad_generation_parameters(bad: dict) -> None:
    with pytest.raises((llmcc.LlmccError, TypeError)):
        _GenParams(**bad)


def test_unknown_generation_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match="temprature"):
        _GenParams(temprature=1.0)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("max_new_tokens", "use max_tokens"),
        ("temprature", "use temperature"),
        ("do_sample", "greedy=True"),
        ("stop_sequences", "use stop"),
        ("eos_token_id", "use stop_tokens"),
        ("strange", "known are max_tokens, stop"),
    ],
)
def test_parameters_of_other_libraries_are_told_ours(name: str, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        _GenParams(**{name: 1})


def test_a_model_s_own_settings_count_where_nothing_is_given() -> None:
    own = {"temperature": 0.5, "top_k": 7, "max_new_tokens": 3}
    sampling = lambda own, **given: _GenParams(**given).native(True, own)  # noqa: E731
    drawn = sampling(own, seed=4).sampling
    assert (drawn.temperature, drawn.top_k, drawn.top_p, drawn.seed) == (0.5, 7, 1.0, 4)
    mixed = sampling(own, top_k=2).sampling
    assert (mixed.temperature, mixed.top_k) == (0.5, 2)
    # Zeros would ask C for the model's own way.
    assert sampling(own, temperature=0).sampling.top_k == 1 and sampling({}).sampling.top_k == 1
    greedy = sampling(own, greedy=True)
    assert (greedy.sampling.temperature, greedy.sampling.top_k, greedy.flags) == (0.0, 0, ffi.GEN_NO_DEFAULTS)
    # Artifacts of before have no such flag.
    assert sampling(None, greedy=True).flags == 0 and sampling(None).sampling.top_k == 0


def test_generation_parameters_reach_c() -> None:
    params = _GenParams(7, temperature=0.5, top_k=3, seed=9, stop=["a", "é"], stop_tokens=[4], ignore_eos=True).native(text=False)
    assert (params.size, params.max_tokens) == (ctypes.sizeof(ffi.GenParams), 7)
    assert (params.sampling.temperature, params.sampling.top_k, params.sampling.seed) == (0.5, 3, 9)
    assert [params.stop[i] for i in range(params.n_stop)] == [b"a", "é".encode()]
    assert (params.stop_tokens[0], params.n_stop_tokens) == (4, 1)
    assert params.flags == ffi.GEN_IGNORE_EOS | ffi.GEN_NO_TEXT


def test_integer_arrays() -> None:
    assert list(ffi.int32_array([1, -2], "x")) == [1, -2]
    for bad in (5, b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc", [1.5], [1.0], [True], ["1"], [None], [[1]], None):
        with pytest.raises(TypeError, match="x must be a sequence of integers"):
            ffi.int32_array(bad, "x")  # type: ignore[arg-type]


def test_numpy_arrays_of_integers() -> None:
    np = pytest.importorskip("numpy")
    for dtype in (np.int8, np.int32, np.int64, np.uint16, np.uint64):
        assert list(ffi.int32_array(np.array([1, 2], dtype), "x")) == [1, 2]
        assert list(ffi.int32_array([dtype(3)], "x")) == [3]
    assert list(ffi.int32_array(np.arange(6)[::2], "x")) == [0, 2, 4]
    for bad in (np.array([1.0]), np.array([True]), np.array(5), np.ones((2, 2), int), np.array(["1"]), [np.float32(1.0)], [np.bool_(True)]):
        with pytest.raises(TypeError, match="x must be a sequence of integers"):
            ffi.int32_array(bad, "x")
    with pytest.raises(llmcc.LlmccError, match="not a 32-bit integer"):
        ffi.int32_array(np.array([2**40]), "x")


def test_importing_the_package_imports_nothing_that_few_programs_need() -> None:
    program = "import sys, llmcc; print(sorted({'asyncio', 'numpy', 'tqdm'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(Path(llmcc.__file__).resolve().parents[1])}
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment).stdout == "[]\n"


def test_typed() -> None:
    assert (Path(llmcc.__file__).parent / "py.typed").exists()
    assert llmcc.__version__ == "0.1.0.dev0"


SAMPLING_NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "repetition_window", "seed")


def test_sampling_defaults() -> None:
    plain, none = _GenParams(), _GenParams(**{name: None for name in SAMPLING_NAMES}, stop=None, stop_tokens=None, adapter=None)  # type: ignore[arg-type]
    for params in (plain, none):
        native = params.native(text=True)
        assert [getattr(native.sampling, name) for name in SAMPLING_NAMES] == [0.0, 0, 1.0, 0.0, 1.0, 0, 0]
        assert (native.n_stop, native.n_stop_tokens, native.adapter) == (0, 0, 0)


@pytest.mark.parametrize(
    "name, bad",
    [
        *((name, x) for name in ("temperature", "top_p", "min_p", "repetition_penalty") for x in (float("nan"), float("inf"), -1.0, -1e-9, 1e39)),
        ("top_p", 1.5),
        ("min_p", 1.0001),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-50),
        ("top_k", -1),
        ("seed", -1),
    ],
)
def test_sampling_out_of_range_is_named(name: str, bad: float) -> None:
    with pytest.raises(llmcc.LlmccError, match=f"{name} is .*; use ") as caught:
        _GenParams(**{name: bad})  # type: ignore[arg-type]
    assert repr(bad).lstrip("-")[:3] in str(caught.value)


@pytest.mark.parametrize("bad", [{"typical_p": 0.9}, {"repeat_penalty": 1.0}, {"guided_json": {}}])
def test_unknown_sampling_is_named(bad: dict) -> None:
    with pytest.raises(TypeError, match=next(iter(bad))):
        _GenParams(**bad)


def test_no_share_keeps_one_token() -> None:
    for share in (0, 0.0, 1e-60):
        found = _GenParams(temperature=1.0, top_p=share).native(text=True).sampling.top_p
        assert 0.0 < found < 1e-30


def test_numbers_of_numpy_are_numbers() -> None:
    np = pytest.importorskip("numpy")
    params = _GenParams(np.int64(7), top_k=np.uint8(3), seed=np.int32(9), temperature=np.float32(0.5), top_p=np.array(0.25), logprobs=np.int64(2), adapter=np.int64(1)).native(text=True)
    assert (params.max_tokens, params.sampling.top_k, params.sampling.seed, params.top_logprobs, params.adapter) == (7, 3, 9, 2, 1)
    assert (params.sampling.temperature, params.sampling.top_p) == (0.5, 0.25)
    for bad in (np.bool_(True), np.float64(1.0), np.array([1]), "1"):
        with pytest.raises(llmcc.LlmccError, match="top_k is"):
            _GenParams(top_k=bad)


def test_iterables_are_lists_of_integers() -> None:
    np = pytest.importorskip("numpy")
    for values in (range(3), (0, 1, 2), iter([0, 1, 2]), (i for i in range(3)), np.arange(3), map(int, "012")):
        assert list(ffi.int32_array(values, "x")) == [0, 1, 2]
    assert [list(ffi.int32_array(empty, "x")) for empty in ([], (), iter(()), np.array([]), np.array([], np.int32))] == [[]] * 5
    for bad in ({0: 1}, {1, 2}):
        with pytest.raises(TypeError, match="x must be a sequence of integers"):
            ffi.int32_array(bad, "x")
    assert list(_GenParams(stop_tokens=(t for t in (1, 2)), stop=iter(["a"])).stop_tokens) == [1, 2]


def test_batches_are_told_from_prompts() -> None:
    from llmcc._batch import as_batch, listed

    np = pytest.importorskip("numpy")
    for batch in (["a", "b"], ("a",), [[1], [2]], [range(2)], np.array([[1, 2]]), [np.array([1])], [iter([1])]):
        assert as_batch(listed(batch)) is not None
    for one in ("text", [1, 2], (1, 2), range(3), np.array([1, 2]), np.array([], np.int64)):
        assert as_batch(listed(one)) is None
    assert as_batch([]) == [] and as_batch(listed(t for t in "ab")) == ["a", "b"] and as_batch(listed(iter(()))) == []


def test_what_is_of_this_process_is_not_copied() -> None:
    import copy
    import pickle

    from llmcc._batch import BatchGeneration, Generation

    for kind in (llmcc.Session, Generation, BatchGeneration, ffi.Library):
        thing = kind.__new__(kind)
        thing._gen, thing._gens, thing._lock = None, {}, __import__("threading").Lock()
        for made in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"{kind.__name__} cannot be copied or pickled: ."):
                made(thing)


def test_calls_are_interrupted() -> None:
    import signal
    import threading
    import time

    library, stopped = ffi.Library.__new__(ffi.Library), threading.Event()
    library._minor = 4
    library.interrupt = lambda handle: stopped.set()

    def call() -> str:
        return "stopped" if stopped.wait(20) else "ended"

    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        library.interruptible(None, call)
    assert time.monotonic() - start < 1.0 and stopped.is_set()
    assert library.interruptible(None, lambda: 7) == 7
    with pytest.raises(ValueError, match="as it is"):
        library.interruptible(None, lambda: int("as it is"))


def test_files_that_change_while_they_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.so"

    def damaged(how: str):
        def check(*_: object) -> None:
            if how == "replaced":
                (tmp_path / "new").write_text("x")
                os.replace(tmp_path / "new", path)
            elif how == "changed":
                path.write_text("longer than it was")
            raise ValueError("its code is not what the compiler wrote")

        return check

    for how, says in (("replaced", "was replaced while it was being loaded"), ("changed", "was changed while it was being loaded"), ("left", "not what the compiler wrote")):
        path.write_text("x")
        monkeypatch.setattr(ffi, "check", damaged(how))
        with pytest.raises(llmcc.LlmccError, match=says):
            llmcc.load(path)
