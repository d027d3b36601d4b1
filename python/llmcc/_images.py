"""Images in prompts, for models that see them."""

from __future__ import annotations

import ctypes as c
import os
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

from . import _batch
from ._chat import as_messages
from ._errors import LlmccError, Status

if TYPE_CHECKING:
    from ._generate import Generate
    from ._text import Text

#: Where a part of a message with an image may have it.
_PLACES = ("image", "path", "url")


#: Rows and columns of the tokens of an image in a prompt.
Grid = tuple[int, int]


class Pictures:
    """The images of a prompt, each as rows and columns of its tokens and as a C array of float32 with their rows."""

    def __init__(self, each: Sequence[tuple[Grid, Any]] = ()) -> None:
        self.each = list(each)

    def __add__(self, other: Pictures) -> Pictures:
        return Pictures([*self.each, *other.each])

    def first(self, tokens: int) -> Pictures:
        """Those whose tokens are among so many first ones."""
        kept = []
        for grid, own in self.each:
            tokens -= grid[0] * grid[1]
            if tokens < 0:
                break
            kept.append((grid, own))
        return Pictures(kept)

    def native(self) -> tuple[Any, Any]:
        """C arrays of all rows, and of rows and columns of tokens."""
        joined = (c.c_float * sum(len(own) for _, own in self.each))()
        at = 0
        for _, own in self.each:
            c.memmove(c.byref(joined, 4 * at), own, 4 * len(own))
            at += len(own)
        return joined, native_grids(self.grids())

    def grids(self) -> list[Grid]:
        """Rows and columns of the tokens of each."""
        return [grid for grid, _ in self.each]


def native_grids(grids: Sequence[Grid]) -> Any:
    """A C array of rows and columns."""
    return (c.c_uint32 * (2 * len(grids)))(*[n for grid in grids for n in grid])


def grid(model: Text, image: Any) -> Grid:
    """Rows and columns of the tokens of an image in a prompt."""
    data, width, height = _read(image)
    _need_eyes(model)
    out = (c.c_uint32 * 2)()
    with model._use() as handle:
        model._lib.image_grid(handle, data, len(data), width, height, out)
    return out[0], out[1]


def rows(model: Text, image: Any) -> Any:
    """The rows of an image, a C array of float32."""
    data, width, height = _read(image)
    needed = c.c_size_t()
    _need_eyes(model)
    with model._use() as handle:
        lib = model._lib
        lib.image_rows(handle, data, len(data), width, height, None, 0, c.byref(needed))
        out = (c.c_float * needed.value)()
        lib.interruptible(handle, lambda: lib.image_rows(handle, data, len(data), width, height, out, len(out), c.byref(needed)))
    return out


def pictures(model: Text, images: Any) -> Pictures:
    """A list of images."""
    if isinstance(images, (str, bytes)) or not hasattr(images, "__iter__"):
        raise TypeError("images must be a list of images; put a single one into a list: [image]")
    listed = list(images)
    _need_eyes(model)
    return Pictures([(grid(model, image), rows(model, image)) for image in listed])


def _need_eyes(model: Text) -> None:
    if not model._info["sees"]:
        raise LlmccError("this model sees no images: compile one that does with with_image=True (llmcc compile --with-image)", Status.UNSUPPORTED)


def _read(image: Any) -> tuple[bytes, int, int]:
    """The bytes of an image's file, or of its pixels with their width and height."""
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image), 0, 0
    if isinstance(image, (str, os.PathLike)):
        if isinstance(image, str) and image.startswith(("http://", "https://", "data:")):
            raise ValueError("images are read from files or bytes: load it first, and give its bytes")
        with open(image, "rb") as file:
            return file.read(), 0, 0
    if hasattr(image, "convert") and hasattr(image, "tobytes"):
        width, height = image.size
        return image.convert("RGB").tobytes(), width, height
    shape, kind = getattr(image, "shape", None), str(getattr(image, "dtype", ""))
    if shape is not None and len(shape) == 3 and shape[2] == 3 and kind == "uint8":
        return image.tobytes(), int(shape[1]), int(shape[0])
    raise TypeError(f"an image must be a path, bytes, a Pillow image or an array [height, width, 3] of uint8, not {type(image).__name__}")


def encoded(model: Text, prompt: Any, images: Union[None, Pictures, Sequence[Any]], add_special: bool = True) -> tuple[list[int], Optional[Pictures]]:
    """Tokens of a prompt, and its images; None without any."""
    if images is None:
        return _batch.encoded(model, prompt), None
    seen = images if isinstance(images, Pictures) else pictures(model, images)
    if isinstance(prompt, str):
        prompt = model.tokenize(expanded(model, prompt, seen.grids()), add_special=add_special)
    return _batch.encoded(model, prompt), seen


def expanded(model: Text, prompt: str, grids: Sequence[Grid]) -> str:
    """A prompt in which the marker of each image has become its tokens."""
    data, native = prompt.encode(), native_grids(grids)
    with model._use() as handle:
        text: str = model._lib.text(lambda *out: model._lib.image_prompt_of(handle, data, len(data), native, len(grids), *out), len(data) + 64)
    return text


def prepared(model: Text, prompts: Sequence[Any], given: dict[str, Any]) -> list[list[int]]:
    """Tokens of prompts. The images of ``given`` (of several prompts a list for each, here or in ``each``) become rows among its parameters."""
    common = given.pop("images", None)
    each: list[Optional[dict[str, Any]]] = [dict(own) for own in given["each"]] if given.get("each") is not None else [{} for _ in prompts]
    if common is None and not any(own and "images" in own for own in each):
        return [_batch.encoded(model, prompt) for prompt in prompts]
    if len(each) != len(prompts):
        raise ValueError(f"each has {len(each)} mappings for {len(prompts)} prompts; give one for each")
    shared = [None] * len(prompts) if common is None else list(common)
    if len(shared) != len(prompts):
        raise ValueError(f"images has {len(shared)} lists for {len(prompts)} prompts; give a list of images for each prompt")
    tokens = []
    for prompt, own, images in zip(prompts, each, shared):
        ids, found = encoded(model, prompt, (own or {}).pop("images", images))
        tokens.append(ids)
        if found is not None and own is not None:
            own["image_rows"] = found
    given["each"] = each
    return tokens


def conversation(
    model: Generate, messages: Sequence[Mapping[str, Any]], tools: Optional[Sequence[Mapping[str, Any]]], template_vars: Optional[Mapping[str, object]]
) -> tuple[list[int], Optional[Pictures]]:
    """Tokens of a conversation, and its images; None without any."""
    plain, images = of_messages(as_messages(messages))
    if not images:
        return model._conversation(messages, tools, template_vars), None
    seen = pictures(model, images)
    variables: Any = dict(template_vars or {})
    prompt = expanded(model, model.apply_chat_template(plain, tools, **variables), seen.grids())
    return model.tokenize(prompt, add_special=False), seen


def with_conversation(
    model: Generate,
    messages: Sequence[Mapping[str, Any]],
    tools: Optional[Sequence[Mapping[str, Any]]],
    template_vars: Optional[Mapping[str, object]],
    params: Mapping[str, Any],
) -> tuple[list[int], dict[str, Any]]:
    """Tokens of a conversation, and ``params`` with its images."""
    tokens, seen = conversation(model, messages, tools, template_vars)
    return tokens, {**params} if seen is None else {**params, "images": seen}


def of_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Any]]:
    """Messages whose images are only marked, as templates take them, and the images in their order."""
    plain: list[Mapping[str, Any]] = []
    images: list[Any] = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, (list, tuple)):
            plain.append(message)
            continue
        parts = []
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == "image":
                place = next((name for name in _PLACES if part.get(name) is not None), None)
                if place is None:
                    raise ValueError('a part {"type": "image"} of a message has no image; give it as "image": a path, bytes, a Pillow image or an array')
                images.append(part[place])
                part = {"type": "image"}
            parts.append(part)
        plain.append({**message, "content": parts})
    return plain, images
