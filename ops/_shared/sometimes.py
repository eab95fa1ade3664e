"""sometimes: ops that change only some images of a batch: how DALI computes those alone, and the base of ops with p.

DALI splits a batch by a flag of each image without copying anything, runs a part of the graph on a smaller batch, and
merges the two again. So an image that is not changed costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Op, check_number
from gpupipe.ops._shared.colour import Colour
from gpupipe.ops._shared.geometry import column
from gpupipe.random import BatchRng

__all__ = ["Sometimes", "flags", "where_dali"]


def where_dali(
    d: Any,
    flag: Any,
    x: Any,
    params: Sequence[Any],
    function: Callable[..., Any],
    otherwise: Callable[..., Any] = lambda x, *params: x,
) -> Any:
    """``function(x, *params)`` for the images whose flag is set, `x` for the others, or ``otherwise(x, *params)``.

    Args:
        d: what `Op.dali` gets.
        flag: a node of the host: one bool per image.
        x: the images.
        params: nodes of the host that `function` takes. It may use no other nodes: they belong to the whole batch.
        function: makes nodes; its result has the type of `x`.
        otherwise: the same for the others.
    """
    some, others = zip(*(d.fn._conditional.split(y, predicate=flag, _if_stmt=True) for y in (x, *params)), strict=True)
    return d.fn._conditional.merge(function(*some), otherwise(*others), predicate=flag)


def flags(rng: BatchRng, p: Any, rows: int) -> Array:
    """Which images are changed if each is with probability `p`, a number or one per row: bool[rows]."""
    drawn: Array = rng.uniform() < column(p, rows, np.float64)
    return drawn


@dataclass(frozen=True, slots=True)
class Sometimes(Colour):
    """Apply another op on colours to each image with probability `p`.

    Subclasses define `changed`, and list its parameters after ``"applied"``; and `fast` if that op does.

    Attributes:
        p: probability, 0..1.
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("applied",)
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    p: Any = 0.5

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "p", self.p, 0, 1)

    @property
    def changed(self) -> Op:
        """The op that is applied."""
        raise TypeError(f"{type(self).__name__} does not define changed")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return flags(rng, self.p, len(hw)), *self.changed.draw(rng, hw)

    def reference(self, x: Array, *params: Any) -> Array:
        return self._applied(self.changed.reference, x, *params)

    def _applied(self, function: Callable[..., Array], x: Array, applied: Any, *params: Any) -> Array:
        self.check_channels(x)
        return function(x, *params) if applied else x

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        applied, *rest = params
        return where_dali(d, applied, x, rest, lambda x, *rest: self.changed.dali(d, x, *rest))
