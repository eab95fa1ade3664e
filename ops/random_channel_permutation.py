"""random_channel_permutation: put the channels of each image in a random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import tolerance
from gpupipe.ops._shared.operands import spec_of_operand
from gpupipe.ops._shared.samples import noise, tones
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.permute_channels import Permuting
from gpupipe.random import BatchRng

__all__ = ["RandomChannelPermutation", "random_channel_permutation"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomChannelPermutation(Permuting):
    """Every order of the channels is equally likely, as in torchvision. Exact on every executor.

    Attributes:
        count: number of channels.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    random: ClassVar[bool] = True

    count: int = 3

    @property
    def channels(self) -> int:
        return self.count

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        order: Any = rng.uniform(self.count).argsort(axis=1, kind="stable")
        return (order.astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in tones(gray=False):
            yield Case(cls(dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x))
        yield Case(cls(2), (noise(4, 5, 2),), ("HWC",))


def random_channel_permutation(image: T, *, seed: int | None = None) -> T:
    """Put the channels of `image` in a random order, as torchvision's `RandomChannelPermutation`.

    Args:
        image: of uint8, uint16, float16 or float32. Where its channels are not known when the chain is written, it
            has to have 3.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type.

    Example:
        >>> sorted(random_channel_permutation(np.array([[[1, 2, 3]]], np.uint8)).ravel().tolist())
        [1, 2, 3]
    """
    dtype = dtype_of("random_channel_permutation", image)
    shape = spec_of_operand(image).shape
    count = shape[-1] if shape and shape[-1] is not None else 3
    return apply(RandomChannelPermutation(count, dtype=dtype), image, seed=seed)  # type: ignore[no-any-return]
