"""one_size: that the images of a call have one size, for ops that draw nothing: draws compare the sizes of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import ShapeError, SpecError
from gpupipe.graph.op import Array, Case, Op, height_and_width, unlike
from gpupipe.graph.symbols import Symbol, apply_together
from gpupipe.graph.values import Apply, Item
from gpupipe.ops._shared.operands import spec_of_operand
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["OneSize", "of_one_size"]


@dataclass(frozen=True, slots=True)
class OneSize(Op):
    """An image of a call on several; what it draws fails where the size of the first is another.

    Attributes:
        layout: of the image.
        stage: the op that users call, for errors.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, or CHW
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "sequence"
    parameters: ClassVar[tuple[str, ...]] = ("hw",)

    layout: str = "HWC"
    stage: str = "one_size"

    @property
    def takes(self) -> str:
        return self.layout

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0].require(self.stage, layout=self.layout)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (hw,)

    def reference(self, x: Array, hw: Array) -> Array:
        return x

    def stacked(self, x: Array, hw: Array) -> Array:
        return x

    def dali(self, d: Any, x: Any, hw: Any) -> Any:
        return x

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield Case(cls(), (np.arange(24, dtype=np.uint8).reshape(4, 2, 3),), ("HWC",))


def of_one_size(op: Op, images: Sequence[Any]) -> tuple[Any, ...]:
    """The images of a call; where `op` draws nothing, compared with the first: now, or when the chain runs.

    Raises:
        SpecError: the sizes of traced images are known, and differ.
        ShapeError: those of arrays differ.
    """
    first, *others = images
    made = [first]
    for x in () if op.parameters else others:
        size, other = _size(first, op.takes), _size(x, op.takes)
        if any(a != b for a, b in zip(size, other, strict=True) if None not in (a, b)):
            text = unlike(size, other)
            raise SpecError(f"{op.stage} {text}") if isinstance(x, Symbol) else ShapeError(text).at(stage=op.stage)
        unknown = None in (*size, *other) and isinstance(x, Symbol) and not _made_together(first, x)
        made.append(apply_together(OneSize(op.takes, op.stage), [x], of=[first, x])[0] if unknown else x)
    return (*made, *others[len(made) - 1 :])


def _made_together(first: Any, other: Symbol) -> bool:
    """Whether one call on several images of one size made both, so that they have one size too."""
    made = [x._value for x in (first, other) if isinstance(x, Symbol) and isinstance(x._value, Item)]
    if len(made) < 2 or made[0].value != made[1].value:
        return False
    call = made[0].value
    op = getattr(call.op, "op", call.op)  # for clips that of its frames
    return isinstance(call, Apply) and hasattr(op, "row")  # of a `Composite`, which moves all images alike


def _size(x: Any, layout: str) -> tuple[int | None, int | None]:
    """Height and width of an image, each None if unknown, or if it has another layout: then `infer` says so."""
    spec = spec_of_operand(x)
    return height_and_width(spec, layout) if (spec.layout or layout)[-3:] == layout else (None, None)
