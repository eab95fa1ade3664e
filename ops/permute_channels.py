"""permute_channels: put the channels of an image in another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.colour import Colour, tolerance
from gpupipe.ops._shared.samples import noise, tones
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["PermuteChannels", "Permuting", "permute_channels"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Permuting(Colour):
    """Base of ops that give the channels an order, which is their parameter. Exact on every executor.

    Attributes:
        channels: how many the image has.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    parameters: ClassVar[tuple[str, ...]] = ("permutation",)

    @property
    def channels(self) -> int:
        raise TypeError(f"{type(self).__name__} does not define channels")

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = Colour.infer(self, *xs)
        if x.shape is not None and x.shape[2] not in (None, self.channels):
            raise SpecError(f"{self.name} needs an image of {self.channels} channels, got {x}")
        return x

    def reference(self, x: Array, *params: Any) -> Array:
        if x.shape[2] != self.channels:
            raise ShapeError(f"{self.name} needs an image of {self.channels} channels, got {x.shape[2]}")
        return np.ascontiguousarray(x[:, :, params[0]])

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        # Touches no pixel, and fails where the image has another number of channels.
        x = d.fn.reshape(x, src_dims=[0, 1, -1], rel_shape=[1, 1, self.channels], layout="HWC")
        planes = [d.fn.slice(x, params[0][k], 1, axes=[2]) for k in range(self.channels)]
        return d.fn.reshape(d.fn.cat(*planes, axis=2), layout="HWC")


@dataclass(frozen=True, slots=True)
class PermuteChannels(Permuting):
    """Channel k of the result is channel ``permutation[k]`` of the image, as in torchvision.

    Attributes:
        permutation: each channel once.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    permutation: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        if sorted(self.permutation) != list(range(len(self.permutation))) or not self.permutation:
            raise SpecError(f"permute_channels needs a permutation of all channels, got {self.permutation}")

    @property
    def channels(self) -> int:
        return len(self.permutation)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (np.tile(np.array(self.permutation, np.int32), (len(hw), 1)),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for order in ((2, 1, 0), (1, 2, 0)):
            for x in tones(gray=False):
                yield Case(cls(order, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=f"{order}")
        yield Case(cls((3, 0, 2, 1)), (noise(4, 5, 4),), ("HWC",))


def permute_channels(image: T, permutation: Sequence[int]) -> T:
    """Put the channels of `image` in another order, as torchvision's `permute_channels`: (2, 1, 0) makes BGR of RGB.

    Args:
        image: of uint8, uint16, float16 or float32.
        permutation: for each channel of the result, which of the image it is.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of that many channels, or `permutation` is none.

    Example:
        >>> permute_channels(np.array([[[1, 2, 3]]], np.uint8), (2, 1, 0))
        array([[[3, 2, 1]]], dtype=uint8)
    """
    order = permutation.tolist() if isinstance(permutation, np.ndarray) else permutation
    order = plain(tuple(order)) if isinstance(order, (list, tuple)) else ()
    if not order or not all(map(is_integer, order)):
        raise PlanTypeError(f"permute_channels needs permutation as integers, got {permutation!r}")
    op = PermuteChannels(order, dtype=dtype_of("permute_channels", image))
    return apply(op, image)  # type: ignore[no-any-return]
