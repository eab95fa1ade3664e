"""color_jitter: change brightness, contrast, saturation and hue at random, in random order, as torchvision does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import MOST_FACTOR, Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.integers import plain
from gpupipe.ops._shared.colour import (
    Colour,
    apart,
    joined,
    luma,
    luma_dali,
    rotate_hue,
    rotate_hue_dali,
    together_dali,
)
from gpupipe.ops._shared.on_host import on_host
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["ColorJitter", "color_jitter"]

T = TypeVar("T")

Range = tuple[float, float] | None
"""Bounds of a factor; None for a step that is left out."""

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)

NONE = -1
"""A slot of the order in which no step is applied."""


@dataclass(frozen=True, slots=True)
class ColorJitter(Colour):
    """Apply four random colour changes in random order, as torchvision does with tensors.

    Each step returns an image of the input's dtype: results are clamped, and integers truncated toward zero. (For
    Pillow images torchvision rounds the gray of `saturation` and `contrast`, and rotates a hue of 8 bits.)

    The images of a batch have different orders, so DALI's nodes compute every step in every slot where an image may
    have it. On the CPU NumPy is cheaper: there the host computes it inside of the graph.

    Attributes:
        brightness: bounds of f in ``f x``.
        contrast: bounds of f in ``f x + (1 - f) m``, m the mean gray of the image.
        saturation: bounds of f in ``f x + (1 - f) gray(x)``.
        hue: bounds of the rotation of the hue in turns, -0.5..0.5.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("order", "factors")
    legal: ClassVar[tuple[int, ...] | None] = (3,)

    brightness: Range = None
    contrast: Range = None
    saturation: Range = None
    hue: Range = None

    @property
    def bounds(self) -> tuple[Range, Range, Range, Range]:
        """The ranges of the four factors."""
        return self.brightness, self.contrast, self.saturation, self.hue

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that are not left out."""
        return tuple(step for step, bounds in enumerate(self.bounds) if bounds is not None)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        u = rng.uniform(8)
        steps = np.array(self.steps or (BRIGHTNESS,), np.int32)
        order = steps[u[:, steps].argsort(axis=1, kind="stable")]
        if HUE in self.steps:
            order = _around_hue(order)
        ranges = np.array([bounds or (1.0, 1.0) for bounds in self.bounds])
        factors = ranges[:, 0] + u[:, 4:] * (ranges[:, 1] - ranges[:, 0])
        return order, factors.astype(np.float32)

    def reference(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        order, factors = params
        levels = apart(x)
        with np.errstate(all="ignore"):  # for floats that are not finite
            for step in [step for step in order.tolist() if step != NONE] if self.steps else ():
                turns = step == HUE
                levels = self._turned(levels, factors[HUE]) if turns else self._blended(levels, factors[step], step)
            return joined(levels, self.dtype)

    def _blended(self, x: Array, factor: Any, step: int) -> Array:
        """``factor x + (1 - factor) other`` in levels of the image's type: black, the mean gray or the gray of x."""
        y = x * factor
        if step != BRIGHTNESS:
            gray = self._whole(luma(x))
            if step == CONTRAST:
                gray = gray.mean(dtype=np.float64).astype(np.float32)
            y += gray * (np.float32(1) - factor)
        return self._whole(np.clip(y, 0, LARGEST[self.dtype], out=y))

    def _turned(self, x: Array, delta: Any) -> Array:
        largest = LARGEST[self.dtype]
        if largest == 1:
            return rotate_hue(x, delta)
        y = rotate_hue(x * np.float32(1 / largest), delta)
        y *= np.float32(self._stretch)
        return self._whole(y)

    @property
    def _stretch(self) -> float:
        """The factor from floats 0..1 back to integers: torchvision's, or the float32 just below it."""
        top = np.float32(LARGEST[self.dtype] + 1)
        return float(min(top - np.float32(1e-3), np.nextafter(top, np.float32(0))))

    def _whole(self, x: Array) -> Array:
        return x if LARGEST[self.dtype] == 1 else np.floor(x, out=x)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        if not self.steps:
            return x
        x = self.checked_dali(d, x)
        return on_host(d, self.reference, x, params) if d.device == "cpu" else self.nodes(d, x, *params)

    def nodes(self, d: Any, x: Any, order: Any, factors: Any) -> Any:
        """The form for a GPU, of DALI nodes alone."""
        levels = d.fn.cast(x, dtype=d.dtype(np.float32))
        # The order differs between the images of a batch: a slot can hold any of the blending steps, or none.
        blends = len(self.steps) - (HUE in self.steps)
        slots: list[int | None] = [*range(blends)]
        if HUE in self.steps:
            slots = [*slots, None, *range(blends + 1, 2 * blends + 1)]
        scalars: list[Any] = []
        for slot in slots:
            scalars += [factors[HUE]] if slot is None else self._weights_dali(d, order[slot], factors)
        given = iter(together_dali(d, scalars))
        shape = levels.shape()
        pixels = d.fn.cast(shape[0] * shape[1], dtype=d.dtype(np.float64))
        for slot in slots:
            if slot is None:
                levels = self._turned_dali(d, levels, next(given))
            else:
                levels = self._blended_dali(d, levels, given, pixels)
        return d.fn.cast(levels, dtype=d.dtype(self.dtype))

    def _weights_dali(self, d: Any, step: Any, factors: Any) -> list[Any]:
        """The numbers that `_blended_dali` takes for a slot of the order, each a host scalar."""
        here = [d.fn.cast(step == other, dtype=d.dtype(np.float32)) for other in (0, 1, 2, NONE)]
        factor = here[NONE] + sum(here[step] * factors[step] for step in (BRIGHTNESS, CONTRAST, SATURATION))
        out = [factor]
        if self.contrast is not None or self.saturation is not None:
            out += [here[SATURATION], 1.0 - factor]
        if self.contrast is not None:
            out.append(here[CONTRAST])
        if LARGEST[self.dtype] == 1:
            wide = here[NONE] * 3e38  # a step clamps floats beyond 0..1, an empty slot must not
            out += [0.0 - wide, 1.0 + wide]
        return out

    def _blended_dali(self, d: Any, x: Any, given: Iterator[Any], pixels: Any) -> Any:
        """Select by sums of products with 0 and 1, which are exact: an empty slot gives ``1 x + 0 0``."""
        y = x * next(given)
        if self.contrast is not None or self.saturation is not None:
            saturates, rest = next(given), next(given)
            gray = self._whole_dali(d, luma_dali(x))
            other = saturates * gray
            if self.contrast is not None:
                other = other + next(given) * self._mean_dali(d, gray, pixels)
            y = y + other * rest
        if LARGEST[self.dtype] == 1:
            return d.math.clamp(y, next(given), next(given))
        levels = d.fn.cast(
            d.math.floor(y), dtype=d.dtype(self.dtype)
        )  # the cast saturates, in half the time of a clamp
        return d.fn.cast(levels, dtype=d.dtype(np.float32))

    def _mean_dali(self, d: Any, gray: Any, pixels: Any) -> Any:
        """The mean gray; integers are summed exactly."""
        if LARGEST[self.dtype] == 1:
            return d.fn.reductions.mean(gray)
        real = d.dtype(np.float64)
        total = d.fn.cast(d.fn.reductions.sum(d.fn.cast(gray, dtype=d.dtype(self.dtype))), dtype=real)
        return d.fn.cast(total / pixels, dtype=d.dtype(np.float32))

    def _turned_dali(self, d: Any, x: Any, delta: Any) -> Any:
        largest = LARGEST[self.dtype]
        if largest == 1:
            return rotate_hue_dali(d, x, delta)
        return d.math.floor(rotate_hue_dali(d, x * (1 / largest), delta) * self._stretch)

    def _whole_dali(self, d: Any, x: Any) -> Any:
        return x if LARGEST[self.dtype] == 1 else d.math.floor(x)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        steps = {"brightness": (0.4, 1.6), "contrast": (0.4, 1.6), "saturation": (0.0, 2.0), "hue": (-0.5, 0.5)}
        x = noise(13, 11)
        cut = "a product just below an integer is truncated one level lower; the step after it may double that"
        for name, bounds in steps.items():
            yield Case(cls(**{name: bounds}), (x,), ("HWC",), atol=1, reason=cut, note=name)  # type: ignore[arg-type]
        yield Case(cls(**steps), (x,), ("HWC",), atol=4, reason=cut, note="all")  # type: ignore[arg-type]
        yield Case(cls(), (x,), ("HWC",), note="none")
        wide = x.astype(np.uint16) * 257
        yield Case(cls(**steps, dtype="uint16"), (wide,), ("HWC",), atol=40, reason=cut, note="all")
        sums = "float32 sums in another order; the hue rotation divides them by the span of a pixel's channels"
        f = x.astype(np.float32) / 255
        yield Case(cls(**steps, dtype="float32"), (f,), ("HWC",), atol=1e-4, reason=sums, note="all")


def _around_hue(order: Array) -> Array:
    """Pad orders so that the hue is in the middle, with as many slots on each side as there are other steps.

    An executor that computes the same for all images of a batch then rotates the hue, the dearest step, only once.
    """
    count, others = len(order), order.shape[1] - 1
    slot = (order == HUE).argmax(axis=1)[:, None]
    rest = order[order != HUE].reshape(count, others)
    before = np.arange(others) < slot
    middle = np.full((count, 1), HUE, order.dtype)
    return np.concatenate([np.where(before, rest, NONE), middle, np.where(before, NONE, rest)], axis=1)


def _range(name: str, value: Any, centre: float, low: float, high: float) -> Range:
    """Bounds from a number (a spread around the centre) or a pair; None where nothing changes."""
    value = plain(value)
    if isinstance(value, (tuple, list, np.ndarray)) and getattr(value, "ndim", 1) == 1 and len(value) == 2:
        bounds = tuple(value)
    elif isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        check_number("color_jitter", name, value, 0, high)
        bounds = (max(centre - value, low), centre + value)
    else:
        raise PlanTypeError(f"color_jitter needs a number or two bounds for {name}, got {value!r}")
    for bound in bounds:
        check_number("color_jitter", name, bound, low, high)
    first, last = (float(bound) for bound in bounds)
    if first > last:
        raise SpecError(f"color_jitter needs {name} from small to large, got {value!r}")
    return None if first == last == centre else (first, last)


def color_jitter(
    image: T,
    brightness: float | Sequence[float] = 0,
    contrast: float | Sequence[float] = 0,
    saturation: float | Sequence[float] = 0,
    hue: float | Sequence[float] = 0,
    *,
    seed: int | None = None,
) -> T:
    """Change the colours of `image` at random, as torchvision's `ColorJitter` does with tensors.

    Args:
        image: 3 channels of uint8, uint16, float16 or float32; floats are 0..1.
        brightness: b >= 0 for a factor from max(0, 1 - b) to 1 + b, or its two bounds.
        contrast: as `brightness`.
        saturation: as `brightness`.
        hue: h, 0..0.5, for a rotation of -h to h turns, or its two bounds.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    The steps are applied in random order. After each, values are clamped, and integers truncated toward zero.
    Floats have to be finite: others become 0, 1 or NaN in NumPy, NaN in DALI.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels, or a parameter is out of range.

    Example:
        >>> color_jitter(np.full((1, 1, 3), 100, np.uint8), brightness=(1.5, 1.5))
        array([[[150, 150, 150]]], dtype=uint8)
    """
    op = ColorJitter(
        _range("brightness", brightness, 1.0, 0.0, MOST_FACTOR),
        _range("contrast", contrast, 1.0, 0.0, MOST_FACTOR),
        _range("saturation", saturation, 1.0, 0.0, MOST_FACTOR),
        _range("hue", hue, 0.0, -0.5, 0.5),
        dtype=dtype_of("color_jitter", image),
    )
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
