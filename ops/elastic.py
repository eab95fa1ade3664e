"""elastic: move every pixel of an image by a smooth random field: an elastic deformation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.affine import numbers_of
from gpupipe.ops._shared.composite import Row, call
from gpupipe.ops._shared.geometry import check_pixels, column
from gpupipe.ops._shared.grain import grain, grain_dali, grain_keys
from gpupipe.ops._shared.libraries import opencv
from gpupipe.ops._shared.warp import Warp, Warping, warp_settings
from gpupipe.ops.gaussian_blur import SMALLEST, blurred
from gpupipe.random import BatchRng

__all__ = ["Displacement", "Elastic", "elastic"]

T = TypeVar("T")

MOST_SIGMA = 100
"""Largest standard deviation in pixels: its kernel has 801."""


@dataclass(frozen=True, slots=True)
class Displacement(Warp):
    """Resample the image at the positions of its pixels plus a random field, `strength` times smoothed white noise.

    The noise is `grain`, from -1 to 1, and equal on every executor. DALI smooths it in another order of sums: positions
    differ by 0.000001 of the strength, so "nearest" may choose the other one of two pixels as near. DALI for the CPU
    cannot resample at any positions, so the host does it in a DALI graph, also where that runs on a GPU.

    Attributes:
        sigma: standard deviations of the smoothing in pixels, (x, y).

    Shapes: ``T[H,W,C]{HWC}, uint32[n,2], float32[2] -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""

    sigma: tuple[float, float] = (5.0, 5.0)
    motion = Op.motion  # no matrix says where boxes and keypoints go

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        return "keys", "strength"

    @property
    def _kernels(self) -> tuple[int, int]:
        """How many pixels the smoothing of each of the two directions looks at: 4 standard deviations around, odd."""
        across, down = (int(8 * sigma + 1) | 1 for sigma in self.sigma)
        return across, down

    def reference(self, x: Array, keys: Array, strength: Array) -> Array:  # type: ignore[override]
        return self.resampled(x, *self._places(self._field(keys, x.shape), strength))

    def _field(self, keys: Array, shape: tuple[int, ...]) -> Array:
        """The smoothed noise: float32[H,W,2]."""
        noise = self._noise(keys, shape)
        fields = [blurred(noise[:, :, n : n + 1], (size, size), self.sigma) for n, size in enumerate(self._kernels)]
        return np.concatenate(fields, axis=2)

    def _noise(self, keys: Array, shape: tuple[int, ...]) -> Array:
        """White noise from -1 to 1 for both directions: float32[H,W,2]."""
        numbers = (grain(keys, (*shape[:2], 2), True) >> np.uint32(8)).astype(np.float32)
        numbers *= np.float32(2.0**-23)
        numbers -= np.float32(1)
        return numbers

    def _places(self, field: Array, strength: Array) -> tuple[Array, Array]:
        height, width = field.shape[:2]
        columns = field[:, :, 0] * strength[0] + (np.arange(width, dtype=np.float32) + np.float32(0.5))
        rows = field[:, :, 1] * strength[1] + (np.arange(height, dtype=np.float32) + np.float32(0.5))[:, None]
        return columns, rows

    def fast(self, x: Array, keys: Array, strength: Array) -> Array:  # type: ignore[override]
        cv2, noise = opencv(), self._noise(keys, x.shape)
        if min(x.shape[:2]) <= max(self._kernels) // 2:
            return self.reference(x, keys, strength)  # OpenCV reflects once
        across, down = self.sigma
        how = {"sigmaX": across, "sigmaY": down, "borderType": cv2.BORDER_REFLECT_101}
        planes = (np.ascontiguousarray(noise[:, :, n]) for n in range(2))
        fields = [cv2.GaussianBlur(plane, (k, k), **how) for plane, k in zip(planes, self._kernels, strict=True)]
        return self.remapped(x, *self._places(np.stack(fields, axis=2), strength))

    def dali(self, d: Any, x: Any, keys: Any, strength: Any) -> Any:  # type: ignore[override]
        real = d.dtype(np.float32)
        upper = grain_dali(d, keys, x, 2) // d.types.Constant(256, dtype=d.dtype(np.uint32))
        noise = d.fn.reshape(d.fn.cast(upper, dtype=real) * 2.0**-23 - 1.0, layout="HWC")
        fields = [
            d.fn.gaussian_blur(
                d.fn.slice(noise, n, 1, axes=[2]), window_size=[size, size], sigma=[self.sigma[1], self.sigma[0]]
            )
            for n, size in enumerate(self._kernels)
        ]
        field = d.fn.cat(*fields, axis=2)
        if d.device == "gpu":
            x, field = x.cpu(), field.cpu()
        y = d.fn.python_function(x, field, strength, function=self._moved, output_layouts="HWC")
        return y.gpu() if d.device == "gpu" else y

    def _moved(self, x: Array, field: Array, strength: Array) -> Array:
        return self.resampled(x, *self._places(field, strength))


@dataclass(frozen=True, slots=True)
class Elastic(Warping):
    """Move every pixel by a smooth random field, drawn for each image, as torchvision's `ElasticTransform` does.

    Executors differ as `Displacement` says.

    Attributes:
        alpha: strengths of the field, (x, y): twice the largest shift in pixels without smoothing.
        sigma: standard deviations of its smoothing in pixels, (x, y).

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    part: ClassVar[type[Warp]] = Displacement
    parameters: ClassVar[tuple[str, ...]] = ("keys", "strength")
    traceable: ClassVar[tuple[str, ...]] = ("alpha",)

    alpha: tuple[Any, Any] = (50.0, 50.0)
    sigma: tuple[float, float] = (5.0, 5.0)

    def __post_init__(self) -> None:
        for value in self.alpha:
            check_number(self.name, "alpha", value, 0, 1e6)
        for value in self.sigma:
            check_number(self.name, "sigma", value, SMALLEST, MOST_SIGMA)

    def row(self, image: int = 0) -> Row:
        widened = any(self.widened[image : image + 1])
        part = Displacement(self.interpolation[image], self.fill[image], False, widened, self.name, self.sigma)
        return ((part, (0, 1)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        check_pixels(self.name, hw)
        strength = np.stack([column(value, len(hw), np.float64) for value in self.alpha], axis=1) / 2
        return grain_keys(rng, hw), strength.astype(np.float32)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.warped_cases((20.0, 30.0), (1.0, 1.2))
        yield from cls.warped_cases((200.0, 100.0), (3.0, 2.0), note="smooth")


def elastic(
    image: T,
    alpha: Any = 50.0,
    sigma: Any = 5.0,
    interpolation: str | Sequence[str] = "bilinear",
    fill: Any = 0,
    *,
    seed: int | None = None,
) -> T:
    """Move every pixel of `image` by a smooth random field, as torchvision's `ElasticTransform`.

    White noise from -1 to 1 for each pixel is smoothed by a Gaussian, and pixels move by `alpha` / 2 times that: with
    the defaults by 0.8 pixels (the standard deviation), seldom by more than 3.

    Args:
        image: see `affine`, like `interpolation` and `fill`, and what is said there about the border.
        alpha: strength along x and along y, at least 0: two numbers, or one for both. May be traced.
        sigma: standard deviation of the Gaussian in pixels, above 0, along x and along y: two numbers, or one for both.
        interpolation: "nearest" or "bilinear"; for several images it may be one per image.
        fill: what comes from outside the image: a number, or one per channel; for several images one number, or such a
            fill per image.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, a number is out of range, or `fill` does not fit the image.

    Example:
        >>> elastic(np.zeros((50, 80, 3), np.uint8), alpha=100).shape
        (50, 80, 3)
    """
    who = "elastic"
    op = Elastic(_two(who, "alpha", alpha), _two(who, "sigma", sigma), **warp_settings(who, image, interpolation, fill))
    return call(op, image, seed)  # type: ignore[no-any-return]


def _two(who: str, name: str, value: Any) -> tuple[Any, Any]:
    """A number for x and for y from one or two."""
    value = plain(value)
    if isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim):
        first, second = numbers_of(who, name, value, 2)
        return first, second
    if is_integer(value):
        value = float(value)
    return value, value
