"""gaussian_blur: average every pixel with its neighbours, weighted by a bell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.integers import plain
from gpupipe.ops._shared.colour import Colour, rows_within, tolerance
from gpupipe.ops._shared.geometry import check_pixels
from gpupipe.ops._shared.libraries import opencv
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["Blur", "GaussianBlur", "blur_tolerance", "blurred", "gaussian_blur", "kernel_of"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Blur(Colour):
    """Convolve with a Gaussian of ``kernel_size`` pixels, as torchvision does: border reflected, integers rounded.

    The result depends on the neighbours of a pixel, so it does not commute with a crop.

    Attributes:
        kernel_size: (width, height) of the kernel, odd.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    parameters: ClassVar[tuple[str, ...]] = ("sigma",)

    kernel_size: tuple[int, int] = (3, 3)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        for size in self.kernel_size:
            check_number(self.name, "kernel_size", size, 1, integer=True)
            if size % 2 == 0:
                raise SpecError(f"{self.name} needs an odd kernel_size, got {size}")

    def reference(self, x: Array, *params: Any) -> Array:
        down, across = params[0].tolist()
        return self._rounded(blurred(x.astype(np.float32), self.kernel_size, (across, down)))

    def fast(self, x: Array, *params: Any) -> Array:
        cv2 = opencv()
        vertical, horizontal = map(_weights, self.kernel_size[::-1], params[0].tolist())
        if min(x.shape[0] - len(vertical) // 2, x.shape[1] - len(horizontal) // 2) < 1:
            return Blur.reference(self, x, *params)  # OpenCV reflects once
        given = x if x.dtype != np.float16 else x.astype(np.float32)
        f = cv2.sepFilter2D(given, cv2.CV_32F, horizontal, vertical, borderType=cv2.BORDER_REFLECT_101)
        return self._rounded(f.reshape(x.shape))

    def _rounded(self, f: Array) -> Array:
        if LARGEST[self.dtype] != 1:
            np.rint(f, out=f)
        return f.astype(self.dtype, copy=False)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        window, real = list(self.kernel_size[::-1]), d.dtype(np.float32)
        x = d.fn.reshape(x, layout="HWC")  # an array of the user's own has axes without names
        if self.dtype == "uint8":
            return d.fn.gaussian_blur(x, window_size=window, sigma=params[0])
        f = d.fn.gaussian_blur(d.fn.cast(x, dtype=real), window_size=window, sigma=params[0])
        return d.fn.cast(f if LARGEST[self.dtype] == 1 else d.math.floor(f + 0.5), dtype=d.dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class GaussianBlur(Blur):
    """Blur with standard deviations `sigma`.

    Attributes:
        sigma: (x, y) in pixels, above 0.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    traceable: ClassVar[tuple[str, ...]] = ("sigma",)

    sigma: tuple[Any, Any] = (0.8, 0.8)

    def __post_init__(self) -> None:
        Blur.__post_init__(self)
        for sigma in self.sigma:
            check_number(self.name, "sigma", sigma, SMALLEST)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        check_pixels(self.name, hw)
        x, y = (rows_within(self.name, "sigma", sigma, len(hw), SMALLEST) for sigma in self.sigma)
        return (np.stack([y, x], axis=1).astype(np.float32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for size, sigma in (((3, 3), (0.8, 0.8)), ((1, 5), (1.0, 3.0)), ((7, 5), (0.1, 1.5))):
            for x in tones():
                op = cls(size, sigma, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **blur_tolerance(x), note=f"{size}-{sigma}")


SMALLEST = 1e-3
"""Smallest standard deviation: its square is far from 0 in float32. From 0.06 down a blur changes nothing."""


def blur_tolerance(x: Array) -> dict[str, Any]:
    """The tolerance of a case with an image of this type."""
    return tolerance(
        x, "sums of float32 in another order, which can move a value across the half between integers", 1, 2e-6
    )


def _weights(size: int, sigma: float) -> Array:
    """The kernel along one axis, float32[size]; its sum is 1."""
    away = (np.arange(size) - size // 2) / sigma
    weights = np.exp(-0.5 * away * away)
    result: Array = (weights / weights.sum()).astype(np.float32)
    return result


def _convolved(f: Array, weights: Array, axis: int) -> Array:
    """float32[H,W,C] with a symmetric kernel along an axis; the border is reflected, as often as needed."""
    reach = len(weights) // 2
    if reach == 0:
        return f
    padded = np.pad(f, [(reach, reach) if n == axis else (0, 0) for n in range(3)], mode="reflect")
    shifted = np.moveaxis(padded, axis, 0)
    count = f.shape[axis]
    total = shifted[reach : reach + count] * weights[reach]
    for k in range(reach):
        total += (shifted[k : k + count] + shifted[2 * reach - k : 2 * reach - k + count]) * weights[k]
    return np.moveaxis(total, 0, axis)


def blurred(f: Array, kernel_size: tuple[int, int], sigma: tuple[float, float]) -> Array:
    """float32[H,W,C] with a Gaussian: both pairs are (x, y)."""
    for axis, (size, deviation) in enumerate(zip(kernel_size[::-1], sigma[::-1], strict=True)):
        f = _convolved(f, _weights(size, deviation), axis)
    return f


def kernel_of(who: str, kernel_size: Any) -> tuple[int, int]:
    """A kernel's (width, height) from one number or two."""
    kernel_size = plain(kernel_size)
    pair = kernel_size if isinstance(kernel_size, (list, tuple)) else (kernel_size, kernel_size)
    if len(pair) != 2:
        raise PlanTypeError(f"{who} needs kernel_size as one integer or (width, height), got {kernel_size!r}")
    return pair[0], pair[1]


def gaussian_blur(image: T, kernel_size: int | Sequence[int], sigma: Any = None) -> T:
    """Blur `image` with a Gaussian, as torchvision's `gaussian_blur`.

    Args:
        image: of uint8, uint16, float16 or float32.
        kernel_size: in pixels: an odd integer, or (width, height). What lies further away has no weight.
        sigma: standard deviation in pixels: a number or (x, y), each may be traced; by default
            ``0.15 * kernel_size + 0.35``.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a parameter is out of range.

    Example:
        >>> gaussian_blur(np.array([[[0], [0], [90], [0], [0]]], np.float32), 3, 1.0).ravel().round()
        array([ 0., 25., 41., 25.,  0.], dtype=float32)
    """
    kernel = kernel_of("gaussian_blur", kernel_size)
    op = GaussianBlur(kernel, dtype=dtype_of("gaussian_blur", image))  # checks the sizes
    sigma = plain(sigma)
    if sigma is None:
        deviations: tuple[Any, ...] = tuple(0.15 * size + 0.35 for size in kernel)
    else:
        several = isinstance(sigma, (list, tuple)) or (isinstance(sigma, np.ndarray) and sigma.ndim == 1)
        deviations = tuple(sigma) if several else (sigma, sigma)
    if len(deviations) != 2:
        raise PlanTypeError(f"gaussian_blur needs sigma as one number or (x, y), got {sigma!r}")
    return apply(GaussianBlur(kernel, deviations, dtype=op.dtype), image)  # type: ignore[no-any-return]
