"""random_gaussian_blur: blur by a random amount, with a probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.geometry import check_pixels, pair
from gpupipe.ops._shared.samples import tones
from gpupipe.ops._shared.sometimes import flags, where_dali
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.gaussian_blur import SMALLEST, Blur, blur_tolerance, kernel_of
from gpupipe.random import BatchRng

__all__ = ["RandomGaussianBlur", "random_gaussian_blur"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomGaussianBlur(Blur):
    """With probability `p`, blur with a standard deviation drawn from `sigma`, the same along both axes.

    Attributes:
        sigma: bounds of the standard deviation in pixels.
        p: probability, 0..1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("applied", "sigma")
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    sigma: tuple[float, float] = (0.1, 2.0)
    p: Any = 1.0

    def __post_init__(self) -> None:
        Blur.__post_init__(self)
        check_number(self.name, "p", self.p, 0, 1)
        for sigma in self.sigma:
            check_number(self.name, "sigma", sigma, SMALLEST)
        if self.sigma[0] > self.sigma[1]:
            raise SpecError(f"{self.name} needs sigma from small to large, got {self.sigma}")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        check_pixels(self.name, hw)
        applied = flags(rng, self.p, len(hw))
        low, high = self.sigma
        sigma = low + rng.uniform() * (high - low)
        return applied, np.repeat(sigma[:, None], 2, axis=1).astype(np.float32)

    def reference(self, x: Array, *params: Any) -> Array:
        return Blur.reference(self, x, params[1]) if params[0] else x

    def fast(self, x: Array, *params: Any) -> Array:
        return Blur.fast(self, x, params[1]) if params[0] else x

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        applied, sigma = params
        return where_dali(d, applied, x, (sigma,), lambda x, sigma: Blur.dali(self, d, x, sigma))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for x in tones():
                op = cls((5, 5), (0.1, 2.0), p, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **blur_tolerance(x), note=f"p={p}")


def random_gaussian_blur(
    image: T,
    kernel_size: int | Sequence[int],
    sigma: float | Sequence[float] = (0.1, 2.0),
    p: Any = 1.0,
    *,
    seed: int | None = None,
) -> T:
    """Blur `image` with a random standard deviation, as torchvision's `GaussianBlur`, but with probability `p`.

    Args:
        image: of uint8, uint16, float16 or float32.
        kernel_size: in pixels: an odd integer, or (width, height). What lies further away has no weight.
        sigma: bounds of the standard deviation in pixels, or one number for both.
        p: probability, 0..1. May be traced. What is not blurred costs nothing.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a parameter is out of range.

    Example:
        >>> random_gaussian_blur(np.array([[[0], [0], [90], [0], [0]]], np.float32), 3, sigma=1.0).ravel().round()
        array([ 0., 25., 41., 25.,  0.], dtype=float32)
    """
    number = isinstance(sigma, (int, float, np.number)) and not isinstance(sigma, bool)
    bounds = pair("random_gaussian_blur", "sigma", (sigma, sigma) if number else sigma)
    kernel = kernel_of("random_gaussian_blur", kernel_size)
    op = RandomGaussianBlur(kernel, bounds, p, dtype=dtype_of("random_gaussian_blur", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
