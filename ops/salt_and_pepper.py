"""salt_and_pepper: make some pixels black and some white."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import Symbol, apply
from gpupipe.ops._shared.colour import Colour, together_dali, tolerance
from gpupipe.ops._shared.geometry import pair
from gpupipe.ops._shared.grain import grain, grain_dali, grain_keys
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["SaltAndPepper", "salt_and_pepper"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SaltAndPepper(Colour):
    """Make each pixel black or white with a probability drawn for each image. Exact on every executor.

    Attributes:
        amount: bounds of the probability that a pixel is changed, 0..1.
        salt_vs_pepper: bounds of the share of white among the changed pixels, 0..1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("keys", "ends")

    amount: tuple[float, float] = (0.01, 0.06)
    salt_vs_pepper: tuple[float, float] = (0.4, 0.6)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        for name in ("amount", "salt_vs_pepper"):
            bounds = getattr(self, name)
            for bound in bounds:
                check_number(self.name, name, bound, 0, 1)
            if bounds[0] > bounds[1]:
                raise SpecError(f"{self.name} needs {name} from small to large, got {bounds}")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        """What is below the first end becomes black, what reaches the second white: int64[B,2], 0..2**32."""
        u = rng.uniform(2)
        (low, high), (least, most) = self.amount, self.salt_vs_pepper
        amount, salt = low + u[:, 0] * (high - low), least + u[:, 1] * (most - least)
        ends = np.stack([amount * (1 - salt), 1 - amount * salt], axis=1) * 2.0**32
        return grain_keys(rng, hw), np.rint(ends).astype(np.int64)

    def reference(self, x: Array, *params: Any) -> Array:
        keys, (black, white) = params
        u = grain(keys, x.shape, False)
        out = np.where(u < black, x.dtype.type(0), x)
        return np.where(u >= white, x.dtype.type(LARGEST[self.dtype]), out)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        keys, ends = params
        u = grain_dali(d, keys, x, False)
        first, second = together_dali(d, (ends[0], ends[1]))
        kept, white = u >= first, u >= second
        if LARGEST[self.dtype] != 1:
            y = (x * kept) | (white * d.types.Constant(LARGEST[self.dtype], dtype=d.dtype(self.dtype)))
        else:
            f = d.fn.cast(x, dtype=d.dtype(np.float32))
            y = d.fn.cast(f * kept * (u < second) + white * 1.0, dtype=d.dtype(self.dtype))
        return d.fn.reshape(y, layout="HWC")

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for amount, share in (((0.1, 0.3), (0.4, 0.6)), ((0.0, 0.0), (0.5, 0.5)), ((1.0, 1.0), (0.0, 1.0))):
            for x in tones():
                op = cls(amount, share, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **tolerance(x), note=f"{amount}")


def salt_and_pepper(
    image: T,
    amount: float | Sequence[float] = (0.01, 0.06),
    salt_vs_pepper: float | Sequence[float] = (0.4, 0.6),
    *,
    seed: int | None = None,
) -> T:
    """Make random pixels of `image` black or white, as albumentations' `SaltAndPepper`.

    Each pixel is changed with the drawn probability, in all of its channels; albumentations changes that share exactly.

    Args:
        image: of uint8, uint16, float16 or float32; white is 255, 65535 or 1.0.
        amount: bounds of the share of changed pixels, 0..1, or one number for both.
        salt_vs_pepper: bounds of the share of white among them, 0..1, or one number for both.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a share is out of range.

    Example:
        >>> salt_and_pepper(np.full((1, 2, 1), 100, np.uint8), amount=1, salt_vs_pepper=1).ravel()
        array([255, 255], dtype=uint8)
    """
    bounds = [_bounds(name, value) for name, value in (("amount", amount), ("salt_vs_pepper", salt_vs_pepper))]
    op = SaltAndPepper(*bounds, dtype=dtype_of("salt_and_pepper", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]


def _bounds(name: str, value: Any) -> tuple[float, float]:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if isinstance(value, Symbol):
        raise PlanTypeError(f"salt_and_pepper needs {name} as one number or two, got a traced value")
    return pair("salt_and_pepper", name, (value, value) if number else value)
