"""recipe: the preprocessing of other libraries as calls of ops, put together step by step.

Other libraries divide by 255 and normalise in two steps, which are one here: `Recipe.to_float` only notes the division.
Their tensors are {CHW}; ops work on {HWC}, and the result is transposed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanError
from gpupipe.graph.symbols import Symbol, apply
from gpupipe.graph.trace import trace
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import images_of
from gpupipe.ops._shared.travel import moved
from gpupipe.ops.decode_image import decode_image
from gpupipe.ops.normalize import normalize
from gpupipe.ops.resize import Resize, nearest_of
from gpupipe.ops.resize_with_crop_or_pad import ResizeWithCropOrPad
from gpupipe.ops.sample import Sample
from gpupipe.ops.transpose import transpose
from gpupipe.spec import LEAF, TensorSpec, flatten

__all__ = ["Recipe", "Transform", "crop_to", "method_of", "pair_of", "refuse", "resize_to"]

METHODS = {
    "bilinear": "bilinear", "bicubic": "bicubic", "lanczos": "lanczos3", "nearest": "nearest",
    "nearest-exact": "nearest",
    0: "nearest", 1: "lanczos3", 2: "bilinear", 3: "bicubic",
}  # fmt: skip
"""The method of `resize` for an interpolation of torchvision or timm by its name, or of Pillow by its number."""


Taken = Literal["image", "sample", "clip", "batch"]
"""What a function takes: an image, encoded or not; the same in a Sample with boxes; a clip; a batch and its labels."""


@dataclass(frozen=True, slots=True)
class Transform:
    """A function of one image that calls ops, for `map` and `gpupipe.preprocessor`.

    Attributes:
        source: what it was made of.
        steps: the calls, in order; an encoded image is decoded to RGB before them.
        takes: what it is a function of.
    """

    source: str
    steps: tuple[Callable[..., Any], ...]
    takes: Taken = "image"

    def __call__(self, image: Any, *labels: Any) -> Any:
        """Apply the steps.

        Args:
            image: an encoded image (bytes) or a decoded one, uint8[H,W,3]{HWC}; a `Sample` of either; or a batch.
            labels: those of a batch that is mixed.
        """
        first = image.image if isinstance(image, Sample) else image
        encoded = first._value.spec.dtype is bytes if isinstance(first, Symbol) else isinstance(first, bytes)
        x = image
        if encoded:
            x = image.through(_decoded) if isinstance(image, Sample) else _decoded(image)
        for step in self.steps:
            x = step(x, *labels)
        return x

    def __repr__(self) -> str:
        before = ["decode_image"] if self.takes in ("image", "sample") else []
        return f"{self.source}: {' -> '.join((*before, *map(_shown, self.steps)))}"


def _decoded(data: Any) -> Any:
    return decode_image(data, channels=3)


def _shown(step: Any) -> str:
    if isinstance(step, list):
        return f"[{', '.join(map(_shown, step))}]"
    given = [*map(_shown, step.args), *(f"{name}={value!r}" for name, value in step.keywords.items())]
    return f"{step.func.__name__}({', '.join(given)})"


@dataclass(slots=True)
class Recipe:
    """The steps so far, and what the image is after them.

    Attributes:
        source: the function that the user called, for messages.
        steps: calls of ops.
        floats: whether values are floats.
        divisor: by which values are still to be divided; 1 if none.
        tensor: whether the image is a tensor in the other library, so the result is {CHW}.
        takes: what the function takes.
    """

    source: str
    steps: list[Callable[[Any], Any]] = field(default_factory=list)
    floats: bool = False
    divisor: float = 1.0
    tensor: bool = False
    takes: Taken = "image"

    def add(self, function: Callable[..., Any], *before: Any, **keywords: Any) -> None:
        """Add a call of an op, which takes the image as its first argument, or the one after those `before`."""
        self._divide()
        self.steps.append(partial(function, *before, **keywords))

    def to_float(self, divisor: float = 255.0) -> None:
        """Divide by a number, at the latest when a step needs the values."""
        self.floats, self.divisor = True, divisor

    def normalize(self, mean: Any, std: Any) -> None:
        """Subtract a mean and divide by a standard deviation, both in the units of the divided values."""
        scaled = [np.asarray(value, np.float64) * self.divisor for value in (mean, std)]
        self.divisor = 1.0
        self.add(normalize, **{name: _plain(value) for name, value in zip(("mean", "std"), scaled, strict=True)})
        self.floats = True

    def _divide(self) -> None:
        divisor, self.divisor = self.divisor, 1.0
        if divisor != 1:
            self.steps.append(partial(normalize, std=divisor))

    def done(self) -> Transform:
        """The function.

        Raises:
            SpecError: an op does not take its parameters.
        """
        self._divide()
        if self.tensor:
            self.steps.append(partial(transpose))
        made = Transform(self.source, tuple(self.steps), self.takes)
        _check(made)
        return made


def _check(made: Transform) -> None:
    """Let the ops check their parameters, on symbols.

    Raises:
        SpecError: an op does not take its parameters.
    """
    image, pair = TensorSpec((), bytes), flatten((0, 0))[1]
    if made.takes == "sample":
        specs: tuple[TensorSpec, ...] = (image, TensorSpec((None, 4), "float32"))
        trace(lambda data, boxes: made(Sample(data, boxes)), pair, specs, force=True, who=made.source)
    elif made.takes == "batch":
        specs = (TensorSpec((None, None, 3), "float32", "HWC"), TensorSpec((None,), "float32"))
        trace(made, pair, specs, batched=True, force=True, who=made.source)
    else:
        clip = TensorSpec((None, None, None, 3), "uint8", "THWC")
        trace(made, LEAF, (clip if made.takes == "clip" else image,), force=True, who=made.source)


def _plain(value: Any) -> Any:
    return tuple(value.tolist()) if value.size > 1 else float(value.item())


def resize_to(image: Any, size: tuple[int, int], interpolation: str, antialias: bool = True) -> Any:
    """Resize an image or a Sample to (height, width); integers are rounded, as in torchvision and Pillow."""
    op = Resize(*size, interpolation, antialias=antialias, keep_dtype=True)
    return moved(op, image, for_masks=nearest_of) if isinstance(image, Sample) else apply(op, image)


def crop_to(image: Any, size: tuple[int, int]) -> Any:
    """Crop or pad as `resize_with_crop_or_pad`, but the odd one of an odd number of zeros is in front."""
    return call(ResizeWithCropOrPad(*size, odd_in_front=True, images=len(images_of(image))), image)


def method_of(who: str, interpolation: Any) -> str:
    """The method of `resize` for another library's interpolation.

    Raises:
        PlanError: there is none.
    """
    value = getattr(interpolation, "value", interpolation)
    if isinstance(value, bool) or value not in METHODS:
        refuse(who, f"interpolation {value!r}", "resize by bilinear, bicubic, lanczos or nearest")
    return METHODS[value]


def pair_of(size: Any) -> tuple[int, int]:
    """(height, width) of one number, of a list with one, or of two."""
    values = list(size) if isinstance(size, Sequence) else [size]
    return int(values[0]), int(values[-1])


def refuse(who: str, what: str, instead: str) -> NoReturn:
    """Refuse what no op does in the same way.

    Raises:
        PlanError: always.
    """
    raise PlanError(f"{who} finds no op that equals {what}; {instead}")
