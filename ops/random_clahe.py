"""random_clahe: even out the histogram of each part of an image, by a random limit and with a probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.colour import tolerance
from gpupipe.ops._shared.geometry import pair
from gpupipe.ops._shared.samples import picture, tones
from gpupipe.ops._shared.sometimes import flags, where_dali
from gpupipe.ops.clahe import MOST, ClaheOf
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["RandomClahe", "random_clahe"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomClahe(ClaheOf):
    """With probability `p`, do `ClaheOf` with a limit drawn from `clip_limit`. Exact on every executor.

    Attributes:
        clip_limit: bounds of the limit, at least 1.
        p: probability, 0..1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, C 1 or 3
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("applied", "limit")
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    clip_limit: tuple[float, float] = (1.0, 4.0)
    p: Any = 0.5

    def __post_init__(self) -> None:
        ClaheOf.__post_init__(self)
        check_number(self.name, "p", self.p, 0, 1)
        for limit in self.clip_limit:
            check_number(self.name, "clip_limit", limit, 1, MOST)
        if self.clip_limit[0] > self.clip_limit[1]:
            raise SpecError(f"{self.name} needs clip_limit from small to large, got {self.clip_limit}")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        applied = flags(rng, self.p, len(hw))
        low, high = self.clip_limit
        return applied, low + rng.uniform() * (high - low)

    def reference(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        return ClaheOf.reference(self, x, params[1]) if params[0] else x

    def fast(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        return ClaheOf.fast(self, x, params[1]) if params[0] else x

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        applied, limit = params
        return where_dali(d, applied, x, (limit,), lambda x, limit: ClaheOf.dali(self, d, x, limit))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            yield Case(cls((4, 3), (1.0, 4.0), p), (picture(40, 50),), ("HWC",), note=f"p={p}")
            for x in tones():
                yield Case(cls((2, 3), p=p, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=f"p={p}-tones")


def random_clahe(
    image: T, clip_limit: Any = 4.0, tile_grid_size: Any = (8, 8), p: Any = 0.5, *, seed: int | None = None
) -> T:
    """Do `clahe` to `image` with a random limit and probability `p`, as albumentations' `CLAHE`.

    Args:
        image: see `clahe`, like `tile_grid_size`.
        clip_limit: bounds of the limit, at least 1, or the upper one: 4 is (1, 4). Each limit is equally likely.
        tile_grid_size: how many tiles a row has, and a column, or one integer for both.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a parameter is out of range.

    Example:
        >>> random_clahe(np.zeros((50, 80, 3), np.uint8), (2, 3)).shape
        (50, 80, 3)
    """
    clip_limit = plain(clip_limit)
    one = is_integer(clip_limit) or isinstance(clip_limit, (float, np.floating))
    bounds: Any = (1.0, clip_limit) if one else pair("random_clahe", "clip_limit", clip_limit)
    tiles = pair("random_clahe", "tile_grid_size", tile_grid_size)
    op = RandomClahe(tiles, bounds, p, dtype=dtype_of("random_clahe", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
