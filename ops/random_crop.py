"""random_crop: crop a window of a given size at a random offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import GeometryError, check_sides, image_of, images_of, static, window
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["RandomCrop", "random_crop"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomCrop(Composite):
    """Crop `height` x `width` pixels, all offsets equally likely. Exact on every executor.

    Attributes:
        height: of the window, in pixels.
        width: of the window.
        channels: of the image, where the caller gives them; only checked.

    Shapes: ``T[H,W,C]{HWC} -> T[height,width,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    drawn: ClassVar[Literal["", "window", "flag"]] = "window"
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("height", "width")

    height: Any
    width: Any
    channels: int | None = None

    def __post_init__(self) -> None:
        check_sides(self, "height", "width")
        if self.channels is not None:
            check_number("random_crop", "channels", self.channels, 1, integer=True)

    def row(self, image: int = 0) -> Row:
        return ((Crop(static(self.height), static(self.width)), (0, 1)),)

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        x = image_of(self.name, x)
        assert x.shape is not None  # an image {HWC} has a rank
        for target, size in zip((static(self.height), static(self.width)), x.shape[:2], strict=True):
            if target is not None and size is not None and target > size:
                raise SpecError(f"{self.name} needs an image as large as its window, got {target} of {size} in {x}")
        if self.channels is not None and x.shape[2] not in (None, self.channels):
            raise SpecError(f"{self.name} keeps all channels, got a size of {self.channels} for {x}")
        return Composite._infer(self, index, x)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        _, size = window(0, 0, self.height, self.width, len(hw))
        spare = hw.astype(np.int64) - size
        bad = np.flatnonzero(((spare < 0) | (size < 1)).any(axis=1)).tolist()
        if bad:
            reasons = {}
            for row in bad:
                (h, w), (height, width) = size[row].tolist(), hw[row].tolist()
                reasons[row] = f"{self.name} needs an image as large as its window of {h}x{w}, got {height}x{width}"
            raise GeometryError.of_rows(reasons)
        start = np.floor(rng.uniform(2) * (spare + 1))  # both ends included
        return window(start[:, 0], start[:, 1], size[:, 0], size[:, 1], len(hw))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(7, 9), noise(7, 9, 1), noise(7, 9, dtype="float32")):
            yield Case(cls(5, 4), (x,), ("HWC",))
        yield Case(cls(7, 9), (noise(7, 9),), ("HWC",), note="whole")
        yield Case(cls(3, 3, images=2), (noise(7, 9), noise(7, 9, 1)), ("HWC", "HWC"), note="with-mask")


@overload
def random_crop(image: T, size: Any, *, seed: int | None = None, return_params: Literal[False] = False) -> T: ...


@overload
def random_crop(image: T, size: Any, *, seed: int | None = None, return_params: Literal[True]) -> tuple[T, Any]: ...


@keywords_after("write the size as one, (height, width)")
def random_crop(image: Any, size: Any, *, seed: int | None = None, return_params: bool = False) -> Any:
    """Crop a window of `size` at a random offset.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size, which get the same window.
        size: (height, width) in pixels; TensorFlow's (height, width, channels) is accepted if it keeps all channels.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.
        return_params: also return the window, int32[4] (y, x, height, width) in pixels of `image`, as a pair with the
            result: to move boxes with it, say.

    Shapes: ``T[H,W,C]{HWC} -> T[height,width,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or is known to be smaller than `size`.
        ShapeError: at run time: the image is smaller than `size`.

    Example:
        >>> random_crop(np.zeros((50, 80, 3), np.uint8), (32, 32)).shape
        (32, 32, 3)
    """
    xs = images_of(image)
    if not isinstance(size, (tuple, list, np.ndarray)) or len(size) not in (2, 3):
        raise PlanTypeError(f"random_crop needs size as (height, width) or (height, width, channels), got {size!r}")
    height, width, *channels = (item.item() if isinstance(item, np.generic) else item for item in size)
    op = RandomCrop(height, width, *channels, images=len(xs))
    return call(op, image, seed, return_params)
