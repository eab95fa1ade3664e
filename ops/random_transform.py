"""random_transform: the augmentation of Keras' ImageDataGenerator, under its names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_flag, check_number
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.affine import numbers_of
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.geometry import images_of
from gpupipe.ops._shared.padding import Padding
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.warp import Warp
from gpupipe.ops.cast import cast
from gpupipe.ops.color_jitter import color_jitter
from gpupipe.ops.random_channel_shift import random_channel_shift
from gpupipe.ops.random_flip_left_right import random_flip_left_right
from gpupipe.ops.random_flip_up_down import random_flip_up_down
from gpupipe.ops.sample import Sample
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["RandomTransform", "random_transform"]

T = TypeVar("T")

WHO = "random_transform"

FILL_MODES = ("nearest", "constant", "reflect", "wrap")

CONTINUED = {"reflect": "symmetric", "wrap": "wrap"}
"""Modes in which the image goes on outside, as `Padding` calls them."""

Shift = float | tuple[float, ...]
"""The largest shift, or all there are, each also in the other direction; below 1 they are shares of a side."""


@dataclass(frozen=True, slots=True)
class RandomTransform(Composite):
    """Zoom, shear, shift and rotate the image around its middle, by numbers drawn as Keras' ImageDataGenerator does.

    Executors differ as `Warp` says.

    Attributes:
        rotation: the largest angle in degrees.
        width_shift: shifts along the lines.
        height_shift: shifts along the columns.
        shear: the largest angle in degrees.
        zoom: bounds of the factors that divide the size, one for each axis.
        mode: "nearest", "constant", "reflect" or "wrap".
        cval: of what lies outside in mode "constant".
        order: 0 or 1 for the nearest pixel or the mean of four, one per image.

    Shapes: ``float32[H,W,C]{HWC} -> float32[H,W,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("matrix", "start", "shape", "after", "size")

    rotation: float = 0.0
    width_shift: Shift = 0.0
    height_shift: Shift = 0.0
    shear: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    mode: str = "nearest"
    cval: float = 0.0
    order: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name, value in (("rotation_range", self.rotation), ("shear_range", self.shear)):
            check_number(WHO, name, value, 0)
        for bound in self.zoom:
            check_number(WHO, "zoom_range", bound, 1e-3, 1e3)
        if self.mode not in FILL_MODES:
            raise SpecError(f"{WHO} needs fill_mode from {', '.join(FILL_MODES)}, got {self.mode!r}")
        if len(self.order) != self.images or any(order not in (0, 1) for order in self.order):
            raise SpecError(f"{WHO} needs interpolation_order 0 or 1, or one per image, got {self.order}")

    def row(self, image: int = 0) -> Row:
        method = ("nearest", "bilinear")[self.order[image]]
        if self.mode in CONTINUED:
            larger = Padding(CONTINUED[self.mode], stage=WHO)
            return (larger, (1, 2, 3)), (Warp(method, (), expand=True, stage=WHO), (0, 4))
        return ((Warp(method, (self.cval,) if self.mode == "constant" else (), stage=WHO), (0,)),)

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        made = Composite._infer(self, index, x)
        return TensorSpec(x.shape, made.dtype, "HWC")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        u = rng.uniform(8)
        turn, shear = np.radians((2 * u[:, 0] - 1) * self.rotation), np.radians((2 * u[:, 1] - 1) * self.shear)
        shift = np.stack(
            [_shifted(self.width_shift, u[:, 2:4], hw[:, 1]), _shifted(self.height_shift, u[:, 4:6], hw[:, 0])]
        )
        low, high = self.zoom
        zoom = low + u[:, 6:] * (high - low)
        none, one = np.zeros(len(hw)), np.ones(len(hw))
        rotation = _matrices(np.cos(turn), -np.sin(turn), np.sin(turn), np.cos(turn))
        linear = (
            rotation
            @ _matrices(one, -np.sin(shear), none, np.cos(shear))
            @ _matrices(zoom[:, 0], none, none, zoom[:, 1])
        )
        middle = hw[:, ::-1, None] * 0.5
        offset = middle - linear @ middle + rotation @ shift.T[:, :, None]
        matrix = np.concatenate([linear, offset], axis=2)
        before = after = np.zeros_like(hw)
        if self.mode in CONTINUED:
            before, after = _reach(matrix, hw)
            matrix[:, :, 2] += before[:, ::-1]
        size = hw.astype(np.int32)
        sides = -before, before + size + after, after, size
        return matrix.astype(np.float32), *(side.astype(np.int32) for side in sides)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        drift = "DALI adds up positions in float32"
        x = noise(13, 17, dtype="float32")
        for mode in FILL_MODES:
            op = cls(30.0, 0.2, (1.0, 3.0), 10.0, (0.7, 1.4), mode, 9.0)
            yield Case(op, (x,), ("HWC",), atol=0.05, reason=drift, note=mode)
            both = cls(30.0, 2.5, 0.0, 0.0, (1.0, 1.5), mode, 9.0, (1, 0), images=2)
            with_mask = (x, noise(13, 17, 1))
            yield Case(both, with_mask, ("HWC", "HWC"), atol=0.05, reason=drift, note=f"{mode}-with-mask")
        yield Case(cls(), (x,), ("HWC",), note="none")


def _matrices(a: Array, b: Array, c: Array, d: Array) -> Array:
    return np.stack([a, b, c, d], axis=1).reshape(-1, 2, 2)


def _shifted(shift: Shift, u: Array, length: Array) -> Array:
    """Shifts along an axis in pixels, from two numbers in [0, 1) each."""
    if isinstance(shift, tuple):
        choices = np.array(shift)
        drawn: Array = choices[(u[:, 0] * len(choices)).astype(int)] * np.where(u[:, 1] < 0.5, -1.0, 1.0)
    else:
        drawn = (2 * u[:, 0] - 1) * shift
    return drawn * length if np.max(shift) < 1 else drawn


def _reach(matrix: Array, hw: Array) -> tuple[Array, Array]:
    """How far positions are above and left of images, and below and right: (height, width), at most the image's."""
    ends = hw[:, ::-1] - 0.5
    corners = np.stack(
        [
            np.stack([x, y], axis=1)
            for x in (0 * ends[:, 0] + 0.5, ends[:, 0])
            for y in (0 * ends[:, 1] + 0.5, ends[:, 1])
        ]
    )
    moved = (matrix[None, :, :, :2] @ corners[..., None])[..., 0] + matrix[:, :, 2]
    before = np.ceil(0.5 - moved.min(axis=0))[:, ::-1]
    after = np.ceil(moved.max(axis=0) + 0.5)[:, ::-1] - hw
    return np.clip(before, 0, hw), np.clip(after, 0, hw)


def random_transform(  # noqa: PLR0913 : the arguments are those of Keras
    image: T,
    rotation_range: float = 0,
    width_shift_range: float | Sequence[float] = 0.0,
    height_shift_range: float | Sequence[float] = 0.0,
    brightness_range: Sequence[float] | None = None,
    shear_range: float = 0.0,
    zoom_range: float | Sequence[float] = 0.0,
    channel_shift_range: float = 0.0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    horizontal_flip: bool = False,
    vertical_flip: bool = False,
    interpolation_order: int | Sequence[int] = 1,
    *,
    seed: int | None = None,
) -> T:
    """Augment `image` as the method of Keras' `ImageDataGenerator` of this name, with the arguments of that class.

    One affine map for each image, then a shift of its values, flips and a change of brightness. Shifts are along the
    axis that their names say, and the middle of the image stays where it is: Keras' code exchanges both axes, which
    shows where ranges differ or the image is not a square. Where "constant" leaves the image between two pixels, image
    and `cval` are mixed; Keras has `cval` from the middle of the outermost pixel on.

    Args:
        image: an image of 0..255, a `Sample`, or a tuple of images of equal size that move together, say with a mask;
            the colours of the first alone change.
        rotation_range: the largest angle in degrees.
        width_shift_range: the largest shift, as a share of the width if below 1, else in pixels; an integer n for
            whole pixels below n; or a list of shifts, each also in the other direction.
        height_shift_range: the same along the columns.
        brightness_range: bounds of a factor, for 3 channels; values become integers before it.
        shear_range: the largest angle in degrees.
        zoom_range: z for 1 - z to 1 + z, or the two bounds; both axes are drawn, and above 1 makes things smaller.
        channel_shift_range: see `random_channel_shift`.
        fill_mode: what comes from outside: "nearest" repeats the edge, "constant" is `cval`, "reflect" a mirror image,
            "wrap" the image again, both once; behind it the edge is repeated. (Of "wrap" Keras' docs show the first
            pixel behind the last one, as here; in its code, which is SciPy's, the two fall together.)
        cval: of "constant".
        horizontal_flip: flip left to right with probability 1/2.
        vertical_flip: flip upside down with probability 1/2.
        interpolation_order: 1 for the mean of four pixels, 0 for the nearest one; for several images it may be one per
            image. Masks of order 0 keep their dtype.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> float32[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or an argument is out of range.

    Example:
        >>> random_transform(np.zeros((50, 80, 3), np.uint8), 20, 0.1, 0.1, horizontal_flip=True).shape
        (50, 80, 3)
    """
    for name, flag in (("horizontal_flip", horizontal_flip), ("vertical_flip", vertical_flip)):
        check_flag(WHO, name, flag)
    count = len(images_of(image))
    given: Any = plain(interpolation_order)
    order = (given,) * count if is_integer(given) else tuple(given)
    if isinstance(image, Sample) and is_integer(given):
        order = (given, *(0,) * (count - 1))
    check_number(WHO, "cval", plain(cval))
    op = RandomTransform(
        plain(rotation_range),
        _shift("width_shift_range", width_shift_range),
        _shift("height_shift_range", height_shift_range),
        plain(shear_range),
        _zoom(zoom_range),
        fill_mode,
        float(cval),
        order,
        images=count,
    )
    both: Any = call(op, _first(lambda x: cast(x, np.float32), image), seed)
    if plain(channel_shift_range) != 0:
        both = _first(lambda x: random_channel_shift(x, channel_shift_range, seed=seed), both)
    if horizontal_flip:
        both = random_flip_left_right(both, seed=seed)
    if vertical_flip:
        both = random_flip_up_down(both, seed=seed)
    return both if brightness_range is None else _brightened(both, brightness_range, seed)  # type: ignore[no-any-return]


def _first(change: Callable[[Any], Any], image: Any) -> Any:
    """An image, the first of several, or that of a Sample changed."""
    return (change(image[0]), *image[1:]) if isinstance(image, tuple) else change(image)


def _brightened(image: Any, brightness_range: Any, seed: int | None) -> Any:
    """The first image with another brightness, and its masks."""
    bounds = numbers_of(WHO, "brightness_range", brightness_range, 2)

    def brighter(x: Any) -> Any:
        return cast(color_jitter(cast(x, np.uint8), brightness=bounds, seed=seed), np.float32)

    return _first(brighter, image)


def _shift(name: str, value: Any) -> Shift:
    value = plain(value)
    if is_integer(value):
        check_number(WHO, name, value, 0, 1 << 20)
        return tuple(map(float, range(value))) or 0.0
    if isinstance(value, (tuple, list, np.ndarray)) and len(value):
        for item in value:
            check_number(WHO, name, plain(item))
        return tuple(map(float, value))
    check_number(WHO, name, value, 0)
    number: Any = value
    return float(number)


def _zoom(value: Any) -> tuple[float, float]:
    value = plain(value)
    if is_integer(value) or isinstance(value, (float, np.floating)):
        check_number(WHO, "zoom_range", value, 0, 1)
        value = (1 - value, 1 + value)
    low, high = numbers_of(WHO, "zoom_range", value, 2)
    for bound in (low, high):
        check_number(WHO, "zoom_range", bound, 1e-3, 1e3)
    return float(low), float(high)
