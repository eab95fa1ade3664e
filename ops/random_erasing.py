"""random_erasing: fill a random rectangle of each image, as torchvision's augmentation does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.integers import plain
from gpupipe.ops._shared.fill import check_single, filling
from gpupipe.ops._shared.geometry import column, layout_of, smallest_and_largest
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["RandomErasing", "random_erasing"]

T = TypeVar("T")

ATTEMPTS = 10

DTYPES = tuple(map(np.dtype, ("uint8", "uint16", "int16", "int32", "int64", "float32")))
"""The dtypes that DALI's erase takes."""


@dataclass(frozen=True, slots=True)
class RandomErasing(Op):
    """With probability `p`, fill a rectangle of random area and aspect ratio. Exact on every executor.

    Attributes:
        p: probability, 0..1.
        scale: bounds of the rectangle's share of the area, 0..1.
        ratio: bounds of its height / width, above 0.
        value: the fill value: one number, or one per channel.
        layout: of the image.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, or CHW
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    still: ClassVar[bool] = True
    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    p: Any = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: tuple[float, ...] = (0.0,)
    layout: Literal["HWC", "CHW"] = "HWC"

    def __post_init__(self) -> None:
        check_number("random_erasing", "p", self.p, 0, 1)
        for name, low, high in (("scale", 0, 1), ("ratio", 1e-6, None)):
            bounds = getattr(self, name)
            for bound in bounds:
                check_number("random_erasing", name, bound, low, high)
            if bounds[0] > bounds[1]:
                raise SpecError(f"random_erasing needs {name} from small to large, got {bounds}")
        if not self.value:
            raise SpecError("random_erasing needs a number for value, or one per channel, got none")
        for number in self.value:
            check_number("random_erasing", "value", number)
        if self.layout not in ("HWC", "CHW"):
            raise SpecError(f'random_erasing needs layout "HWC" or "CHW", got {self.layout!r}')

    @property
    def takes(self) -> str:
        return self.layout

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = xs[0].require("random_erasing", layout=self.layout)
        assert x.shape is not None  # an image has a rank
        if x.dtype not in DTYPES:
            names = ", ".join(map(str, DTYPES))
            raise SpecError(f"random_erasing needs an image of {names}, got {x}; convert it first with ops.cast")
        channels = x.shape[self.layout.index("C")]
        if len(self.value) > 1 and channels not in (len(self.value), None):
            raise SpecError(f"random_erasing needs one value or one per channel, got {len(self.value)} values for {x}")
        if x.dtype.kind in "iu":
            limits = np.iinfo(x.dtype)
            if any(number != int(number) or not limits.min <= number <= limits.max for number in self.value):
                raise SpecError(f"random_erasing needs values that fit the image, got {self.value} for {x}")
        check_single("random_erasing", "values", self.value, x)
        return x

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        u = rng.uniform(1 + 2 * ATTEMPTS + 2)
        start, shape = erased_windows(u[:, 1:], hw, self.scale, self.ratio)
        spared = u[:, 0] >= column(self.p, len(hw), np.float64)
        shape[spared] = 0
        start[spared] = 0
        return start, shape

    def reference(self, x: Array, start: Array, shape: Array) -> Array:
        (y, left), (h, w) = start.tolist(), shape.tolist()
        if h == 0:
            return x
        values = filling(self.value, x.dtype)
        out = x.copy()
        if self.layout == "HWC":
            out[y : y + h, left : left + w] = values
        else:
            out[:, y : y + h, left : left + w] = values[:, None, None]
        return out

    def dali(self, d: Any, x: Any, start: Any, shape: Any) -> Any:
        anchor, extent = (d.fn.cast(node, dtype=d.dtype(np.float32)) for node in (start, shape))
        # An array that was fed without a layout has axes without names.
        x = d.fn.reshape(x, layout=self.layout)
        return d.fn.erase(x, anchor=anchor, shape=extent, axis_names="HW", fill_value=list(self.value))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(17, 23), noise(9, 9, 1), noise(12, 8, dtype="float32"), noise(12, 8, 3, "int32")):
            yield Case(cls(1.0), (x,), ("HWC",))
        yield Case(cls(0.5, value=(7.0, 8.0, 255.0)), (noise(17, 23),), ("HWC",), note="colour")
        yield Case(cls(0.0), (noise(5, 4),), ("HWC",), note="never")
        yield Case(cls(1.0, scale=(0.9, 0.9), ratio=(9.0, 9.0)), (noise(9, 9),), ("HWC",), note="nothing-fits")
        f = np.ascontiguousarray(noise(17, 23, dtype="float32").transpose(2, 0, 1))
        yield Case(cls(1.0, value=(-1.5, 0.25, 2.0), layout="CHW"), (f,), ("CHW",), note="chw")


def erased_windows(u: Array, hw: Array, scale: tuple[float, float], ratio: tuple[float, float]) -> tuple[Array, Array]:
    """Draw rectangles as torchvision does: the first of 10 attempts that is smaller than the image, else none.

    Args:
        u: float64[B,22] in [0, 1): 10 areas, 10 shapes, then offsets y and x.
        hw: int32[B,2], sizes of the images.
        scale: bounds of the share of the area.
        ratio: bounds of height / width.

    Returns:
        Offsets and shapes, int32[B,2] each; zeros where no attempt fits.
    """
    area = hw.prod(axis=1, dtype=np.float64)[:, None] * (scale[0] + u[:, :ATTEMPTS] * (scale[1] - scale[0]))
    low, high = np.log(ratio[0]), np.log(ratio[1])
    shape = np.exp(low + u[:, ATTEMPTS : 2 * ATTEMPTS] * (high - low))
    h, w = np.rint(np.sqrt(area * shape)), np.rint(np.sqrt(area / shape))  # half to even, as Python's round
    fits = (h < hw[:, :1]) & (w < hw[:, 1:])
    first = fits.argmax(axis=1)[:, None]
    size = np.concatenate([np.take_along_axis(h, first, 1), np.take_along_axis(w, first, 1)], axis=1)
    size[~fits.any(axis=1) | (size == 0).any(axis=1)] = 0
    start = np.floor(u[:, -2:] * (hw - size + 1))  # both ends included
    start[size[:, 0] == 0] = 0
    return start.astype(np.int32), size.astype(np.int32)


def random_erasing(
    image: T,
    p: Any = 0.5,
    scale: Sequence[float] = (0.02, 0.33),
    ratio: Sequence[float] = (0.3, 3.3),
    value: float | Sequence[float] = 0,
    *,
    layout: Literal["HWC", "CHW"] | None = None,
    seed: int | None = None,
) -> T:
    """Fill a random rectangle of `image` with probability `p`, as torchvision's `RandomErasing`.

    Args:
        image: one image, before or after `normalize` and `transpose`.
        p: probability, 0..1; a number or a traced host value.
        scale: bounds of the rectangle's share of the area, 0..1.
        ratio: bounds of its height / width.
        value: a number, or one per channel, in the units of the image. (torchvision's "random" is not supported: a
            number per pixel is not drawn on the host.)
        layout: of the image, where it is not known; the default is HWC.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, or CHW

    Raises:
        SpecError: `image` is not an image, a parameter is out of range, or `value` does not fit the image.

    Example:
        >>> random_erasing(np.ones((9, 9, 1), np.uint8), p=1, seed=1).min()
        np.uint8(0)
    """
    if isinstance(value, str):
        raise SpecError(f"random_erasing needs a number for value, or one per channel, got {value!r}")
    value = plain(value)
    values: Any = value if isinstance(value, (tuple, list, np.ndarray)) else (value,)
    try:
        filled = tuple(float(number) for number in values)
    except (TypeError, ValueError) as error:
        raise PlanTypeError(f"random_erasing needs a number for value, or one per channel, got {value!r}") from error
    if any(isinstance(number, int) and number != single for number, single in zip(values, filled, strict=True)):
        raise SpecError(f"random_erasing needs values that float32 holds, as integers up to 2**24, got {value!r}")
    shares = smallest_and_largest("random_erasing", "scale", scale)
    ratios = smallest_and_largest("random_erasing", "ratio", ratio)
    return apply(RandomErasing(p, shares, ratios, filled, layout or layout_of(image)), image, seed=seed)  # type: ignore[no-any-return]
