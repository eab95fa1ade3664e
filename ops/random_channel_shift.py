"""random_channel_shift: add one random number to all values of an image, as Keras' function of this name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.integers import plain
from gpupipe.ops._shared.colour import together_dali
from gpupipe.ops._shared.geometry import column, image_of
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["RandomChannelShift", "random_channel_shift"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomChannelShift(Op):
    """Add a number from -range to range to all values, and clip them to the least and the largest value of the image.

    Exact on every executor.

    Attributes:
        intensity_range: the largest number.

    Shapes: ``float32[H,W,C]{HWC} -> float32[H,W,C]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    still: ClassVar[bool] = True
    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("shift",)
    traceable: ClassVar[tuple[str, ...]] = ("intensity_range",)

    intensity_range: Any

    def __post_init__(self) -> None:
        check_number("random_channel_shift", "intensity_range", self.intensity_range, 0)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return image_of("random_channel_shift", xs[0], (np.dtype(np.float32),))

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        most = column(self.intensity_range, len(hw), np.float64)
        return (((2 * rng.uniform() - 1) * most).astype(np.float32),)

    def reference(self, x: Array, shift: Array) -> Array:
        if not x.size:
            return x
        clipped: Array = np.clip(x + np.float32(shift), x.min(), x.max())
        return clipped

    def dali(self, d: Any, x: Any, shift: Any) -> Any:
        (number,) = together_dali(d, [shift])
        return d.math.clamp(x + number, d.fn.reductions.min(x), d.fn.reductions.max(x))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(9, 12, dtype="float32"), noise(5, 4, 1, "float32") / 255 - 3):
            yield Case(cls(30.0), (x.astype(np.float32),), ("HWC",))
        yield Case(cls(0), (noise(3, 4, dtype="float32"),), ("HWC",), note="never")


def random_channel_shift(image: T, intensity_range: Any, *, seed: int | None = None) -> T:
    """Add one random number to all values of `image`, as `keras.preprocessing.image.random_channel_shift`.

    Args:
        image: float32, of any range; results are clipped to its least and its largest value.
        intensity_range: the number is drawn from -intensity_range to intensity_range; a number or a traced host value.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``float32[H,W,C]{HWC} -> float32[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of float32, or the range is below 0.

    Example:
        >>> random_channel_shift(np.zeros((2, 2, 3), np.float32), 20).max()
        np.float32(0.0)
    """
    return apply(RandomChannelShift(plain(intensity_range)), image, seed=seed)  # type: ignore[no-any-return]
