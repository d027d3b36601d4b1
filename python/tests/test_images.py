"""A model that sees (``LLMCC_TEST_IMAGES``, compiled of the fixture ``llava`` with ``with_image``), and its pictures."""

import os
import pathlib

import pytest

import llmcc

ARTIFACT = os.environ.get("LLMCC_TEST_IMAGES")
pytestmark = pytest.mark.skipif(not ARTIFACT, reason="LLMCC_TEST_IMAGES names no artifact")
PICTURES = pathlib.Path(__file__).parents[2] / "tests" / "goldens" / "pictures"
IMAGE, COUNT = 127, 36
PROMPT = [5, *[IMAGE] * COUNT, 44, 9]


def tokens(model, images, prompt=PROMPT, **params):
    return [p.token for p in model.pieces(prompt, images=images, max_tokens=6, ignore_eos=True, **params)]


def test_images_are_paths_bytes_and_arrays():
    path = PICTURES / "rgb.png"
    with llmcc.load(ARTIFACT) as m:
        assert m.info["sees"]
        want = tokens(m, [path])
        assert tokens(m, [str(path)]) == tokens(m, [path.read_bytes()]) == want
        numpy = pytest.importorskip("numpy")
        black = numpy.zeros((30, 47, 3), dtype="uint8")
        assert len(tokens(m, [black])) == 6
        assert m.complete(PROMPT, images=[path], max_tokens=6, ignore_eos=True).tokens == want


def test_batches_have_images_of_their_own():
    images = [[PICTURES / name] for name in ("rgb.png", "wide.png", "tall.png")]
    with llmcc.load(ARTIFACT) as m:
        how = {"max_tokens": 6, "ignore_eos": True}
        alone = [tokens(m, own) for own in images]
        assert [c.tokens for c in m.complete([PROMPT] * 3, images=images, **how)] == alone
        assert [c.tokens for c in m.complete([PROMPT] * 3, each=[{"images": own} for own in images], **how)] == alone
        # Beside a prompt without any.
        mixed = m.complete([PROMPT, [5, 6]], images=[images[0], None], **how)
        assert mixed[0].tokens == alone[0]


def test_refusals():
    with llmcc.load(ARTIFACT) as m:
        for images, error, says in [
            ("cat.png", TypeError, "must be a list"),
            ([3], TypeError, "an image must be a path"),
            (["https://a.b/c.png"], ValueError, "load it first"),
            ([b"none"], llmcc.LlmccError, "no image in a format that is read"),
            ([], llmcc.LlmccError, "0 rows are given"),
        ]:
            with pytest.raises(error, match=says):
                tokens(m, images)
        with pytest.raises(llmcc.LlmccError, match="0 rows are given"):
            tokens(m, None)
        with pytest.raises(ValueError, match="has no image"):
            m.chat([{"role": "user", "content": [{"type": "image"}]}])
