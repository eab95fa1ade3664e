"""fitting: resize each image to a size that follows from its own by a law of another library, for recipes.

Each law is the original's arithmetic on one size, step by step: a product that is rounded elsewhere is a pixel off on
some images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import images_of, one_per_image
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.scaling import Scaling, ring_case
from gpupipe.random import BatchRng

__all__ = ["LAWS", "Fit", "fit"]


def _shortest(height: int, width: int, side: float) -> tuple[int, int]:
    """The shorter side gets a length; the longer one is truncated."""
    if width < height:
        return int(side * height / width), int(side)
    return int(side), int(side * width / height)


def _shortest_and_longest(height: int, width: int, side: float, most: float, kept: bool = True) -> tuple[int, int]:
    """The same, but the longer side is at most another length, and the shorter one is rounded where it is."""
    exact = float(side)
    if max(height, width) / min(height, width) * side > most:
        exact = most * min(height, width) / max(height, width)
    short = round(exact)
    if min(height, width) == short and (kept or height <= width):
        return height, width
    if width < height:
        return int(exact * height / width), short
    return short, int(exact * width / height)


def _yolos(height: int, width: int, side: float, most: float) -> tuple[int, int]:
    """The same; a portrait whose shorter side is right already is still resized."""
    return _shortest_and_longest(height, width, side, most, kept=False)


def _longest(height: int, width: int, side: float) -> tuple[int, int]:
    """The longer side gets a length; both are rounded, halves up."""
    scale = side / max(height, width)
    return int(height * scale + 0.5), int(width * scale + 0.5)


def _rounded(height: int, width: int, side: float) -> tuple[int, int]:
    """The shorter side gets a length; both are rounded, halves to even."""
    scale = side / min(height, width)
    return round(height * scale), round(width * scale)


def _within(height: int, width: int, most_height: float, most_width: float) -> tuple[int, int]:
    """As large as two sides allow; both are truncated."""
    scale = min(most_height / height, most_width / width)
    return int(height * scale), int(width * scale)


def _vilt(height: int, width: int, side: float) -> tuple[int, int]:
    """The shorter side gets a length, and the longer one at most 1333/800 of it; both are rounded, halves up."""
    most = int(1333 / 800 * side)
    new = (side, width * (side / height)) if height < width else (height * (side / width), side)
    scale = most / max(new) if max(new) > most else 1.0
    return int(new[0] * scale + 0.5), int(new[1] * scale + 0.5)


def _dpt(height: int, width: int, to: tuple[float, float], keep: bool, multiple: int) -> tuple[int, int]:
    """Multiples of a number near a size, or near the image's own sides by that factor of a side that changes less."""
    down, across = to[0] / height, to[1] / width
    if keep:
        down = across = across if abs(1 - across) < abs(1 - down) else down
    made = (round(down * height / multiple) * multiple, round(across * width / multiple) * multiple)
    return made


def _own(height: int, width: int) -> tuple[int, int]:
    return height, width


LAWS: dict[str, Callable[..., tuple[int, int]]] = {
    "dpt": _dpt,
    "longest": _longest,
    "own": _own,
    "rounded": _rounded,
    "shortest": _shortest,
    "shortest and longest": _shortest_and_longest,
    "vilt": _vilt,
    "within": _within,
    "yolos": _yolos,
}
"""From height, width and some numbers to (height, width)."""


@dataclass(frozen=True, slots=True)
class Fit(Scaling):
    """Resize to what a law makes of each image's size.

    Attributes:
        law: one of `LAWS`.
        numbers: what it takes besides the size.
        multiple: both sides become multiples of this number of pixels.
        up: whether they grow to these multiples, or shrink.
    """

    law: str
    numbers: tuple[Any, ...] = ()
    multiple: int = 1
    up: bool = False

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise SpecError(f"{self.name} needs a law from {', '.join(LAWS)}, got {self.law!r}")
        Scaling.__post_init__(self)

    def scaled(self, rng: BatchRng, hw: Array) -> Array:
        whole = math.ceil if self.up else math.floor
        sizes = [LAWS[self.law](*size, *self.numbers) for size in hw.tolist()]
        return np.array([[whole(side / self.multiple) * self.multiple for side in size] for size in sizes], np.float64)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for law, *numbers in (("shortest and longest", 24, 30), ("longest", 40), ("within", 30, 50), ("vilt", 24)):
            for x in (noise(61, 83), noise(83, 50, 1), noise(40, 40, dtype="float32")):
                yield ring_case(cls(law, tuple(numbers)), x, law)
        yield ring_case(cls("shortest", (24,), 16, up=True), noise(61, 83), "up")
        yield ring_case(cls("own", (), 16), noise(61, 83), "down")


def fit(
    image: Any,
    law: str,
    numbers: tuple[Any, ...] = (),
    interpolation: str = "bilinear",
    antialias: bool = True,
    multiple: int = 1,
    up: bool = False,
) -> Any:
    """Resize an image or a Sample by a law of `LAWS`; integers are rounded."""
    methods, count = one_per_image("fit", "interpolation", interpolation, image), len(images_of(image))
    return call(Fit(law, numbers, multiple, up, interpolation=methods, antialias=antialias, images=count), image)
