"""images: what a request may hold, as the elements of a chain."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sized
from typing import Any

import numpy as np

from ..brief import brief
from ..errors import DataError, PlanError, PlanTypeError
from ..flow.element import Element, Hole, Stream
from ..io import ReadFile
from ..spec import TensorSpec

__all__ = ["elements_of", "listed"]

CHANNELS = 4
"""Arrays with up to this many channels get a plan for their number of channels; all others share one."""


def listed(images: Any) -> list[Any]:
    """The images of a request as a list: one image is a list of one.

    Raises:
        PlanTypeError: it is neither an image nor a list of images.
        PlanError: it is empty.
    """
    if isinstance(images, (bytes, bytearray, memoryview, str, os.PathLike)):
        return [images]
    if isinstance(images, np.ndarray) and images.ndim < 4:
        return [images]
    if not isinstance(images, Iterable) or isinstance(images, dict):
        raise PlanTypeError(
            f"a preprocessor needs images: bytes, paths or arrays, one or a list of them, got {_said(images)}"
        )
    found = list(images)
    if not found:
        raise PlanError("a preprocessor needs at least one image, got none")
    return found


def elements_of(images: list[Any], start: int, key: int) -> tuple[list[Element], TensorSpec]:
    """The images as elements, files read; one that cannot be read is a hole. Also returns the type of them all.

    Args:
        images: bytes, paths or arrays.
        start: the index of the first.
        key: of the stream that they belong to.

    Raises:
        PlanTypeError: encoded and decoded images, or arrays of several dtypes or ranks, in one request.
    """
    unnamed = Stream(key, "images")
    spec: TensorSpec | None = None
    elements: list[Element] = []
    for number, image in enumerate(images, start):
        stream, value, of_this = unnamed, image, ENCODED
        if isinstance(image, (str, os.PathLike)):
            stream = Stream(key, os.fsdecode(image))
            try:
                value = READ(os.fsencode(image))
            except DataError as error:
                elements.append((Hole(error.at(stream.name, number, "read_file", stream.unit)), stream, number))
                spec = spec or ENCODED
                continue
        elif isinstance(image, (bytearray, memoryview, np.bytes_)):
            value = bytes(image)
        elif type(image) is not bytes:
            value, of_this = _array(image, number)
        if spec is None:
            spec = of_this
        elif spec != of_this:
            raise PlanTypeError(
                f"a preprocessor needs images of one kind in a request, got {of_this} after {spec}, at index {number}"
            )
        elements.append(((value,), stream, number))
    assert spec is not None
    return elements, spec


def _said(given: Any) -> str:
    """What was given, in words: of bytes, which nobody can read, the type and the length."""
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}, {list(given.shape)}"
    return f"{type(given).__name__} of length {len(given)}" if isinstance(given, Sized) else brief(given)


ENCODED = TensorSpec((), bytes)
READ = ReadFile().reference


def _array(image: Any, number: int) -> tuple[Any, TensorSpec]:
    """A decoded image and its type, without its height and width."""
    if not isinstance(image, np.ndarray) or image.dtype.kind not in "biuf":
        raise PlanTypeError(
            f"a preprocessor needs images: bytes, paths or arrays of numbers, got {_said(image)}, at index {number}"
        )
    channels = image.shape[2] if image.ndim == 3 and image.shape[2] <= CHANNELS else None
    shape = (None, None, channels) if image.ndim == 3 else (None,) * image.ndim
    return image, TensorSpec(shape, image.dtype)
