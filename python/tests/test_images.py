"""Models that see (``LLMCC_TEST_IMAGES`` and ``LLMCC_TEST_PLACED``, compiled of the fixtures ``llava`` and ``qwen2_vl`` with ``with_image``), and their pictures."""

import os
import pathlib

import pytest

import llmcc

ARTIFACT, PLACED = (os.environ.get(name) for name in ("LLMCC_TEST_IMAGES", "LLMCC_TEST_PLACED"))
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


def test_sessions_keep_their_images():
    first, second = ([PICTURES / name] for name in ("rgb.png", "wide.png"))
    how = {"max_tokens": 4, "ignore_eos": True}
    with llmcc.load(ARTIFACT) as m, m.session() as s:
        assert m.info["image_token"] == IMAGE
        made = lambda images, prompt: [p.token for p in m.pieces(prompt, images=images, **how)]
        s.generate(PROMPT, images=first, **how)
        begun = s.tokens
        assert begun == [*PROMPT, *made(first, PROMPT)]
        s.generate(PROMPT, images=second, **how)
        both = [*begun, *PROMPT]
        assert s.tokens == [*both, *made([*first, *second], both)]
        # Without the second image, and in a copy.
        s.truncate(len(begun))
        copy = s.fork()
        for each in (s, copy):
            each.generate([44, 9], **how)
            assert each.tokens == [*begun, 44, 9, *made(first, [*begun, 44, 9])]
        with pytest.raises(ValueError, match="parts of its messages"):
            s.chat([{"role": "user", "content": "a"}], images=first)


@pytest.mark.skipif(not PLACED, reason="LLMCC_TEST_PLACED names no artifact")
def test_positions_are_data():
    tokens, places = [5, 6, 7, 8], [[i] * 3 for i in range(4)]
    with llmcc.load(PLACED) as m:
        step = lambda **how: m.step([(m.session(), tokens)], numpy=False, **how)
        assert step() == step(positions=[places])
        moved = [places[0], [1, 4, 2], [1, 4, 3], places[3]]
        assert step(positions=[moved]) != step()
        for wrong, error in (([places[1:]], ValueError), ([[[0, 0]] * 4], ValueError), ([[[-1, 0, 0]] * 4], llmcc.LlmccError), (3, TypeError)):
            with pytest.raises(error, match="position"):
                step(positions=wrong)
    with llmcc.load(ARTIFACT) as m:
        with pytest.raises(llmcc.LlmccError, match="places in sequences"):
            m.step([(m.session(), [5])], positions=[[[0, 0, 0]]])


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
