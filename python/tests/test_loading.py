"""Loading, closing and unloading: closed objects are gone, and a file that changed is noticed."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_ARTIFACT", "")
OTHER = os.environ.get("LLMCC_TEST_OTHER_ARTIFACT", "")
pytestmark = pytest.mark.skipif(not (PATH and OTHER), reason="LLMCC_TEST_ARTIFACT and LLMCC_TEST_OTHER_ARTIFACT name no artifacts")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(PATH, tmp_path / "m.so"))


def replace(file: Path, source: str) -> None:
    """As the compiler does: another file, renamed."""
    new = file.with_suffix(".new")
    shutil.copyfile(source, new)
    os.replace(new, file)


def mapped(file: Path) -> list[str]:
    return [line for line in open("/proc/self/maps") if str(file.parent) in line]


def vocabularies() -> tuple[int, int]:
    sizes = []
    for path in (PATH, OTHER):
        with llmcc.load(path, threads=1, max_tokens=64) as model:
            sizes.append(model.info["vocab"])
    assert sizes[0] != sizes[1]
    return sizes[0], sizes[1]


def test_closing_unloads(file: Path) -> None:
    with llmcc.load(file, threads=2, max_tokens=64) as model:
        assert mapped(file)
        model.generate("Once upon a time", max_tokens=4, ignore_eos=True)
    assert not mapped(file)
    with pytest.raises(llmcc.LlmccError, match="closed"):
        model.tokenize("x")
    with pytest.raises(llmcc.LlmccError, match="closed"):
        model.stats()


def test_a_replaced_file_is_loaded_anew(file: Path) -> None:
    first, second = vocabularies()
    with llmcc.load(file, threads=1, max_tokens=64) as model:
        assert model.info["vocab"] == first
    replace(file, OTHER)
    with llmcc.load(file, threads=1, max_tokens=64) as model:
        assert model.info["vocab"] == second
    assert not mapped(file)


def test_a_file_replaced_while_a_model_is_open(file: Path) -> None:
    first, second = vocabularies()
    with llmcc.load(file, threads=1, max_tokens=64) as old:
        for source, vocab in [(OTHER, second), (PATH, first), (OTHER, second)]:
            replace(file, source)
            with llmcc.load(file, threads=1, max_tokens=64) as new:
                assert (new.info["vocab"], old.info["vocab"]) == (vocab, first)
                assert new.forward([1, 2]).shape == (2, vocab)
        assert old.forward([1, 2]).shape == (2, first)
    assert not mapped(file)


def test_a_file_overwritten_in_place_is_noticed(file: Path) -> None:
    with llmcc.load(file, threads=1, max_tokens=64):
        os.utime(file, ns=(1, 1))
        with pytest.raises(llmcc.LlmccError, match="overwritten while a model of it is open") as caught:
            llmcc.load(file)
        assert caught.value.status == llmcc.Status.ARTIFACT
    llmcc.load(file, threads=1, max_tokens=64).close()


def test_models_of_one_file_share_it(file: Path) -> None:
    a, b = (llmcc.load(file, threads=1, max_tokens=64) for _ in range(2))
    a.close()
    assert mapped(file) and b.forward([1]).shape[0] == 1
    b.close()
    assert not mapped(file)


def test_a_failed_load_leaves_nothing(file: Path) -> None:
    with pytest.raises(llmcc.LlmccError):
        llmcc.load(file, threads=1_000_000)
    assert not mapped(file)


def test_streams_keep_the_library(file: Path) -> None:
    model = llmcc.load(file, threads=1, max_tokens=256)
    stream = model.stream("Once upon a time", max_tokens=8, ignore_eos=True)
    half = model.stream("Once upon a time", max_tokens=8, ignore_eos=True)
    next(half)
    model.close()
    assert mapped(file) and "".join(stream)
    assert mapped(file)
    del half
    gc.collect()
    assert not mapped(file)


def test_forgotten_models_are_unloaded(file: Path) -> None:
    model = llmcc.load(file, threads=1, max_tokens=64)
    session = model.session()
    session.append([1, 2])
    cycle = [model, session]
    cycle.append(cycle)
    del model, session, cycle
    gc.collect()
    assert not mapped(file)


def test_many_threads_load_and_close(file: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                with llmcc.load(file, threads=1, max_tokens=256) as model:
                    model.generate("Once", max_tokens=2, ignore_eos=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and not mapped(file)


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "model.close()",
        "stream = model.stream('Once', max_tokens=9); next(stream)",
        "import threading; threading.Thread(target=lambda: model.generate('Once', max_tokens=200, ignore_eos=True), daemon=True).start()",
    ],
)
def test_python_may_end_at_any_time(file: Path, end: str) -> None:
    program = f"import sys, llmcc; model = llmcc.load({str(file)!r}, threads=2, max_tokens=512); model.generate('Once', max_tokens=2); {end}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
