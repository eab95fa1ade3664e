"""random_adjust_sharpness: sharpen or smooth an image, with a probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.samples import noise, tones
from gpupipe.ops._shared.sometimes import Sometimes
from gpupipe.ops.adjust_sharpness import AdjustSharpness, sharpness_tolerance
from gpupipe.ops.convert_image_dtype import dtype_of

__all__ = ["RandomAdjustSharpness", "random_adjust_sharpness"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomAdjustSharpness(Sometimes):
    """Blend each image with its smoothed version, or away from it, with probability `p`.

    Attributes:
        sharpness_factor: 0 smooths, 1 changes nothing, 2 sharpens.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    parameters: ClassVar[tuple[str, ...]] = ("applied", *AdjustSharpness.parameters)
    traceable: ClassVar[tuple[str, ...]] = ("p", "sharpness_factor")

    sharpness_factor: Any = 1.0

    def __post_init__(self) -> None:
        Sometimes.__post_init__(self)
        check_number(self.name, "sharpness_factor", self.sharpness_factor, 0)

    @property
    def changed(self) -> Op:
        return AdjustSharpness(self.sharpness_factor, dtype=self.dtype)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for x in (*tones(), noise(2, 9)):
                op = cls(p, 1.7, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **sharpness_tolerance(x), note=f"p={p}")


def random_adjust_sharpness(image: T, sharpness_factor: Any, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Sharpen `image`, or smooth it, with probability `p`, as torchvision's `RandomAdjustSharpness`.

    Args:
        image: of uint8, uint16, float16 or float32. Results are clamped, floats to 0..1.
        sharpness_factor: at least 0: 0 smooths, 1 changes nothing, 2 sharpens. May be traced.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a parameter is out of range.

    Example:
        >>> x = np.zeros((3, 3, 1), np.uint8)
        >>> x[1, 1] = 130
        >>> random_adjust_sharpness(x, 0, p=1)[1, 1]
        array([50], dtype=uint8)
    """
    op = RandomAdjustSharpness(p, sharpness_factor, dtype=dtype_of("random_adjust_sharpness", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
