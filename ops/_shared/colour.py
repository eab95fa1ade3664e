"""colour: shared by ops on colours: dtype conversion, means, hue and saturation, drawn numbers.

As in `tf.image`, integers are computed as floats 0..1 and truncated back, saturated: ``x / 255``, the formula,
``trunc(y * 255.5)``; floats are used as they are and never clipped. Hue and saturation need no detour through HSV:
with hue and value fixed, every channel is ``high - saturation * something``, so both are a few sums and products, the
only operations that DALI has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DataError, ShapeError, SpecError
from gpupipe.graph.op import MOST_FACTOR, Array, Op, check_number
from gpupipe.ops._shared.geometry import column
from gpupipe.ops.convert_image_dtype import LARGEST, checked_dtype
from gpupipe.ops.rgb_to_grayscale import WEIGHTS
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = [
    "Colour",
    "apart",
    "channel_means",
    "channel_means_dali",
    "check_bounds",
    "check_factors",
    "extremes",
    "extremes_dali",
    "factors",
    "floats",
    "floats_dali",
    "hue",
    "hue_dali",
    "joined",
    "luma",
    "luma_dali",
    "planes",
    "planes_dali",
    "restored",
    "restored_dali",
    "rotate_hue",
    "rotate_hue_dali",
    "rows_below",
    "rows_within",
    "scale_saturation",
    "scale_saturation_dali",
    "together_dali",
    "tolerance",
    "uniform",
]

DEGREES = (0.0, 2.0, 4.0)
"""Hues of red, green and blue on a circle of length 6."""


@dataclass(frozen=True, slots=True)
class Colour(Op):
    """An op that keeps the size and dtype of the image. Subclasses define `formula` and `formula_dali`, for floats.

    Floats have to be finite. The result for others is up to the executor's arithmetic; there is no warning, and other
    images are not affected.

    Attributes:
        legal: numbers of channels that the image may have; None for any.
        dtype: of the image; a DALI node does not know its own.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, T one of uint8, uint16, float16, float32.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "unit"
    still: ClassVar[bool] = True
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "rows"
    legal: ClassVar[tuple[int, ...] | None] = None

    dtype: str = field(default="uint8", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", checked_dtype(self.name, self.dtype))

    def formula(self, f: Array, *params: Any) -> Array:
        """The formula: float32[H,W,C], 0..1 where the image holds integers -> float32[H,W,C]. Leaves `f` as it is."""
        raise TypeError(f"{type(self).__name__} does not define formula")

    def formula_dali(self, d: Any, f: Any, *params: Any) -> Any:
        """`formula` as DALI nodes."""
        raise TypeError(f"{type(self).__name__} does not define formula_dali")

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = xs[0].require(self.name, layout="HWC", dtype=self.dtype)
        channels = None if x.shape is None else x.shape[2]
        if self.legal is not None and channels not in (None, *self.legal):
            raise SpecError(f"{self.name} needs an image of {_or(self.legal)} channels, got {x}")
        return x

    def reference(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        with np.errstate(all="ignore"):  # for floats that are not finite
            return restored(self.formula(floats(x), *params), self.dtype)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        f = floats_dali(d, self.checked_dali(d, x), self.dtype)
        return restored_dali(d, self.formula_dali(d, f, *params), self.dtype)

    def checked_dali(self, d: Any, x: Any) -> Any:
        """`check_channels` without touching a pixel: DALI fails where there are as many channels as may not be."""
        if self.legal == (3,):
            return d.fn.reshape(x, src_dims=[0, 1, -1], rel_shape=[1, 1, 3], layout="HWC")
        if self.legal is None or not d.unknown_channels:
            return x
        height, width, channels = (x.shape(dtype=d.dtype(np.int32))[axis] for axis in range(3))
        legal = self.legal[0] + sum((channels >= b) * (b - a) for a, b in pairwise(self.legal))
        return d.fn.reshape(x, shape=d.fn.stack(height, width, legal), layout="HWC")

    def check_channels(self, x: Array) -> None:
        """Check an image whose number of channels was not known before run time.

        Raises:
            ShapeError: the op is not defined for that number.
        """
        if self.legal is not None and x.shape[2] not in self.legal:
            raise ShapeError(
                f"{self.name} needs an image of {_or(self.legal)} channels, got {x.shape[2]}; decode with channels=3"
            )


def _or(numbers: tuple[int, ...]) -> str:
    return " or ".join(map(str, numbers))


def floats(x: Array) -> Array:
    """An image as float32, integers scaled to 0..1. Returns the image itself if it is float32."""
    if x.dtype == np.float32:
        return x
    f = x.astype(np.float32)
    scale = LARGEST[x.dtype.name]
    if scale != 1:
        f *= np.float32(1 / scale)
    return f


def floats_dali(d: Any, x: Any, dtype: str) -> Any:
    f = d.fn.cast(x, dtype=d.dtype(np.float32))
    return f if LARGEST[dtype] == 1 else f * (1 / LARGEST[dtype])


def restored(f: Array, dtype: str) -> Array:
    """Floats converted back to the dtype of the image; integers saturate."""
    if dtype == "float32":
        return f
    with np.errstate(over="ignore", invalid="ignore"):  # for values beyond float16, and NaN, whose integer is undefined
        if LARGEST[dtype] == 1:
            return f.astype(dtype)
        f = f * np.float32(LARGEST[dtype] + 0.5)
        return np.clip(f, 0, LARGEST[dtype], out=f).astype(dtype)


def restored_dali(d: Any, f: Any, dtype: str) -> Any:
    """`restored` as DALI nodes. DALI's cast saturates, so that truncating and flooring negative values both give 0."""
    if LARGEST[dtype] != 1:
        f = d.math.floor(f * (LARGEST[dtype] + 0.5))
    return d.fn.cast(f, dtype=d.dtype(dtype))


def channel_means(x: Array) -> Array:
    """Mean of every channel, in the floats of `floats`: float32[C]. Integers are summed exactly."""
    count = x.shape[0] * x.shape[1]
    scale = np.float32(1 / LARGEST[x.dtype.name])
    if x.dtype.kind == "u":
        mean: Array = (x.sum(axis=(0, 1), dtype=np.uint64) / count).astype(np.float32) * scale
        return mean
    real: Array = x.mean(axis=(0, 1), dtype=np.float64).astype(np.float32)
    return real


def channel_means_dali(d: Any, x: Any, f: Any, dtype: str) -> Any:
    """`channel_means` as DALI nodes: float32[1,1,C]; for float images within the rounding of a float32 sum."""
    if LARGEST[dtype] == 1:
        return d.fn.reductions.mean(f, axes=[0, 1], keep_dims=True)
    real = d.dtype(np.float64)
    total = d.fn.cast(d.fn.reductions.sum(x, axes=[0, 1], keep_dims=True), dtype=real)
    shape = x.shape()
    mean = total / d.fn.cast(shape[0] * shape[1], dtype=real)
    return d.fn.cast(mean, dtype=d.dtype(np.float32)) * (1 / LARGEST[dtype])


def planes(f: Array) -> tuple[Array, Array, Array]:
    """Red, green and blue: [H,W,1] each."""
    return f[:, :, :1], f[:, :, 1:2], f[:, :, 2:3]


def apart(x: Array) -> Array:
    """An image as float32[H,W,C] whose channels are contiguous each: many times faster with one number per pixel."""
    f = np.empty((x.shape[2], *x.shape[:2]), np.float32).transpose(1, 2, 0)
    for channel in range(x.shape[2]):
        f[:, :, channel] = x[:, :, channel]
    return f


def joined(f: Array, dtype: str) -> Array:
    """What `apart` made, with the channels of a pixel side by side again."""
    x = np.empty(f.shape, dtype)
    for channel in range(f.shape[2]):
        x[:, :, channel] = f[:, :, channel]
    return x


def planes_dali(f: Any) -> tuple[Any, Any, Any]:
    return f[:, :, 0:1], f[:, :, 1:2], f[:, :, 2:3]


def luma(f: Array) -> Array:
    """The weighted sum of red, green and blue, summed in this order: float32[H,W,3] -> float32[H,W,1]."""
    red, green, blue = (plane * np.float32(weight) for plane, weight in zip(planes(f), WEIGHTS, strict=True))
    red += green
    red += blue
    return red


def luma_dali(f: Any) -> Any:
    red, green, blue = (plane * weight for plane, weight in zip(planes_dali(f), WEIGHTS, strict=True))
    return red + green + blue


def extremes(f: Array) -> tuple[Array, Array]:
    """The smallest and the largest channel of every pixel: [H,W,1] each."""
    red, green, blue = planes(f)
    return np.minimum(np.minimum(red, green), blue), np.maximum(np.maximum(red, green), blue)


def extremes_dali(d: Any, f: Any) -> tuple[Any, Any]:
    red, green, blue = planes_dali(f)
    return d.math.min(d.math.min(red, green), blue), d.math.max(d.math.max(red, green), blue)


def scale_saturation(f: Array, factor: Any) -> Array:
    """Multiply the saturation of HSV by `factor`, up to 1: float32[H,W,3] -> float32[H,W,3].

    With hue and value fixed, a channel is ``high - saturation * high * w``, with w depending on the hue alone. So each
    keeps ``min(factor, 1 / saturation)`` of its distance from `high`, where ``saturation = (high - low) / high``.
    """
    low, high = extremes(f)
    span = high - low
    share = np.maximum(np.minimum(factor, high / (span + (span == 0))), np.float32(0))
    result: Array = high - (high - f) * share
    return result


def scale_saturation_dali(d: Any, f: Any, factor: Any) -> Any:
    low, high = extremes_dali(d, f)
    span = high - low
    share = d.math.max(d.math.min(factor, high / (span + (span == 0.0))), 0.0)
    return high - (high - f) * share


def hue(f: Array, low: Array, high: Array) -> Array:
    """The hue of every pixel on a circle of length 6: float32[H,W,1], -1..5; 0 where there is no colour."""
    red, green, blue = planes(f)
    span = high - low
    # Products with 0 and 1 select exactly, in a fraction of the time of `where`, whose branches pixels decide.
    of_red = red == high
    of_green = (green == high) & ~of_red
    of_blue = ~(of_red | of_green)
    part: Array = of_red * (green - blue)
    part += of_green * (blue - red)
    part += of_blue * (red - green)
    part += span * (of_green * np.float32(2) + of_blue * np.float32(4))
    part /= span + (span == 0)
    return part


def hue_dali(d: Any, f: Any, low: Any, high: Any) -> Any:
    """`hue` as DALI nodes, which have no `where`: sums of products with 0 and 1 select, exactly."""
    red, green, blue = planes_dali(f)
    span = high - low
    not_red = red != high
    of_red = (red == high) * (green - blue)
    of_green = ((green == high) & not_red) * (blue - red + 2.0 * span)
    of_blue = ((green != high) & not_red) * (red - green + 4.0 * span)
    return (of_red + of_green + of_blue) / (span + (span == 0.0))


def together_dali(d: Any, scalars: Sequence[Any]) -> list[Any]:
    """Host scalars on the images' device: on a GPU in one copy for all instead of one for each."""
    if d.device != "gpu":
        return list(scalars)
    moved = d.fn.stack(*scalars).gpu()
    return [moved[i] for i in range(len(scalars))]


def rotate_hue(f: Array, delta: Any) -> Array:
    """Add `delta` (in turns) to the hue of HSV: float32[H,W,3] -> float32[H,W,3].

    A channel is `high` within a sixth of a turn from its own hue, `low` beyond a third, and linear between.
    """
    low, high = extremes(f)
    turned = hue(f, low, high) + np.float32(6) * np.float32(delta)
    turned -= 6 * np.floor(turned * np.float32(1 / 6))
    span, result = high - low, np.empty_like(f)
    for channel, degree in zip(planes(result), DEGREES, strict=True):
        away = np.float32(2) - np.abs(np.float32(3) - np.abs(turned - np.float32(degree)))
        np.subtract(high, span * np.clip(away, 0, 1, out=away), out=channel)
    return result


def rotate_hue_dali(d: Any, f: Any, delta: Any) -> Any:
    low, high = extremes_dali(d, f)
    turned = hue_dali(d, f, low, high) + 6.0 * delta
    turned = turned - 6.0 * d.math.floor(turned * (1 / 6))
    centres = d.types.Constant(np.array(DEGREES, np.float32), device=d.device)
    away = 2.0 - d.math.fabs(3.0 - d.math.fabs(turned - centres))
    return high - (high - low) * d.math.clamp(away, 0.0, 1.0)


def uniform(rng: BatchRng, low: Any, high: Any) -> Array:
    """One number in [low, high) per element, float32[B]; the bounds may differ between elements."""
    low, high = column(low, rng.size, np.float64), column(high, rng.size, np.float64)
    drawn: Array = (low + rng.uniform() * (high - low)).astype(np.float32)
    return drawn


def rows_within(
    who: str, name: str, values: Any, count: int, low: float = -np.inf, high: float = np.inf, *, whole: bool = False
) -> Array:
    """A number, or one per row, as float64[count], each finite and from `low` to `high`, an integer if `whole`.

    Raises:
        DataError: with a reason for each row whose number is not.
    """
    numbers = column(values, count, np.float64)
    good = np.isfinite(numbers) & (numbers >= low) & (numbers <= high)
    if whole:
        good &= numbers == np.floor(numbers)
    bad = np.flatnonzero(~good).tolist()
    if bad:
        kind = "an integer for " if whole else ""
        needs = f"{who} needs {kind}{name} from {low:g} to {high:g}"
        raise DataError.of_rows({row: f"{needs}, got {numbers[row]:g}" for row in bad})
    return numbers


def check_bounds(who: str, names: tuple[str, str], low: Any, high: Any) -> None:
    """Check that the range to draw from is not empty; `draw` checks traced bounds.

    Raises:
        SpecError: both are numbers, and the lower is not below the upper.
    """
    if isinstance(low, (int, float, np.number)) and isinstance(high, (int, float, np.number)) and not low < high:
        raise SpecError(f"{who} needs {names[0]} below {names[1]}, got {low!r} and {high!r}")


def rows_below(who: str, names: tuple[str, str], low: Array, high: Array) -> None:
    """Check that the range of each row of a batch is not empty.

    Raises:
        DataError: with a reason for each row whose range is empty.
    """
    bad = np.flatnonzero(~(low < high)).tolist()
    if bad:
        needs = f"{who} needs {names[0]} below {names[1]}"
        raise DataError.of_rows({row: f"{needs}, got {low[row]:g} and {high[row]:g}" for row in bad})


def check_factors(who: str, lower: Any, upper: Any) -> None:
    """Check the bounds of a random factor, both at least 0; `factors` checks traced ones.

    Raises:
        SpecError: a bound is out of range, or the lower is not below the upper.
    """
    check_number(who, "lower", lower, 0, MOST_FACTOR)
    check_number(who, "upper", upper, None, MOST_FACTOR)
    check_bounds(who, ("lower", "upper"), lower, upper)


def factors(who: str, rng: BatchRng, lower: Any, upper: Any, rows: int) -> Array:
    """One random factor from [lower, upper) per row, float32[rows].

    Raises:
        DataError: the bounds of a row are out of range or not in order.
    """
    low = rows_within(who, "lower", lower, rows, 0, MOST_FACTOR)
    high = rows_within(who, "upper", upper, rows, high=MOST_FACTOR)
    rows_below(who, ("lower", "upper"), low, high)
    return uniform(rng, low, high)


def tolerance(x: Array, reason: str = "", levels: float = 0, real: float = 0.0) -> dict[str, Any]:
    """The tolerance of a case with image `x`, whose values stay below 4.

    Args:
        x: the input.
        reason: why executors differ; "" where they do not.
        levels: largest difference of integers.
        real: largest difference of floats.
    """
    if x.dtype.kind != "f":
        return {"atol": levels, "reason": reason} if levels else {}
    if x.dtype == np.float16:  # one unit in the last place
        half = "DALI rounds a value halfway between two float16 away from 0, NumPy to even"
        return {"atol": max(real, 2.0**-9), "reason": "; ".join(filter(None, (reason, half)))}
    return {"atol": real, "reason": reason} if real else {}
