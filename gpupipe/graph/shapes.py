"""shapes: the base of ops that only change shapes, and subscripts: `x[0]`, `x[..., 0]`, `x[2:5]`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from ..classes import dataclass
from ..errors import SpecError
from ..integers import is_integer, plain
from ..spec import TensorSpec
from .op import Array, Case, Op
from .strided import subscripted

__all__ = ["Dims", "Reshaping", "Subscript", "checked_key", "row_key"]

Dims = tuple[int | None, ...]
"""A shape; None where a dimension is not known."""


@dataclass(frozen=True, slots=True)
class Reshaping(Op):
    """Base of ops that change the shape, and are exact on every executor. Subclasses define `dims` and `shaped`.

    Attributes:
        given: the spec of the (first) input, which DALI needs, and the sizes of images.
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "any"
    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"

    given: TensorSpec | None = field(default=None, kw_only=True, repr=False)

    @abstractmethod
    def dims(self, shape: Dims) -> Dims:
        """The shape of the result for an input of this shape.

        Raises:
            SpecError: there is none.
        """

    def layout(self, x: TensorSpec) -> str | None:
        """The layout of the result; None for anything but an image."""
        return None

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = xs[0]
        if x.shape is None:
            return TensorSpec(None, x.dtype)
        return TensorSpec(self.dims(x.shape), x.dtype, self.layout(x))

    def size(self, hw: Array, *params: Array) -> Array:
        if self.given is None or self.given.shape is None:
            return hw
        before = self.given.layout or _axes(len(self.given.shape))
        shape, sizes = list(self.given.shape), []
        for row in hw.tolist():
            if len(shape) >= 2:
                shape[before.index("H")], shape[before.index("W")] = row
            made = self.dims(tuple(shape))
            after = self.layout(self.given) or _axes(len(made))
            sizes.append([made[after.index(axis)] or 0 for axis in "HW"] if len(made) >= 2 else [0, 0])
        return np.array(sizes, np.int32).reshape(len(hw), 2)

    def named(self, d: Any, node: Any) -> Any:
        """A result in DALI with its layout; of rank 3 it is an image {HWC}, as in `TensorSpec.require`."""
        if self.given is None:
            return d.fn.reshape(node, layout="")
        spec = self.infer(self.given)
        return d.fn.reshape(node, layout=spec.layout or ("HWC" if spec.rank == 3 else ""))


def _axes(rank: int) -> str:
    """The first axes of a value without a layout, as ops on images take it: four are those of a clip."""
    return "THW" if rank == 4 else "HW"


@dataclass(frozen=True, slots=True)
class Subscript(Reshaping):
    """`x[key]`, as in NumPy. The channels, rows and columns of an image may be selected.

    Attributes:
        key: integers, slices, None and at most one Ellipsis.

    Shapes: NumPy's; an image of which only rows, columns or channels are selected by slices stays one.
    """

    key: tuple[Any, ...] = ()

    def dims(self, shape: Dims) -> Dims:
        made: list[int | None] = []
        parts = self._parts(shape)
        for part, n in parts:
            if part is None:
                made.append(1)
            elif isinstance(part, slice):
                made.append(n if part == slice(None) else None if n is None else len(range(*part.indices(n))))
            elif n is not None and not -n <= part < n:
                raise SpecError(f"a subscript needs an index from {-n} to {n - 1}, got {part} for {list(shape)}")
        return tuple(made)

    def layout(self, x: TensorSpec) -> str | None:
        assert x.shape is not None
        return x.layout if all(isinstance(part, slice) for part, _ in self._parts(x.shape)) else None

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        if xs[0].dtype is bytes and not xs[0].rank:
            raise SpecError(f"a subscript is not defined for bytes, got {xs[0]}")
        return Reshaping.infer(self, *xs)

    def reference(self, x: Any) -> Any:
        return x[self.key]

    def dali(self, d: Any, x: Any) -> Any:
        assert self.given is not None and self.given.shape is not None
        parts = self._parts(self.given.shape)
        taken = tuple(part for part, _ in parts if part is not None)
        left = [part for part, _ in parts if not isinstance(part, int)]
        node = subscripted(d, x, taken, self.given.dtype)
        added = [axis for axis, part in enumerate(left) if part is None]
        return self.named(d, d.fn.expand_dims(node, axes=added) if added else node)

    def _parts(self, shape: Dims) -> list[tuple[Any, int | None]]:
        """One integer or slice for each dimension, with its size, and None for each new one."""
        count = sum(part is not None and part is not Ellipsis for part in self.key)
        if count > len(shape):
            raise SpecError(f"a subscript needs at most {len(shape)} indices for {_text(shape)}, got {count}")
        key = self.key if Ellipsis in self.key else (*self.key, Ellipsis)
        at = key.index(Ellipsis)
        whole = (*key[:at], *[slice(None)] * (len(shape) - count), *key[at + 1 :])
        sizes = iter(shape)
        return [(part, None if part is None else next(sizes)) for part in whole]

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
        one, back = slice(None), slice(None, None, -1)
        keys: dict[str, Any] = {
            "x[..., 0]": (..., 0), "x[..., -1]": (..., -1), "x[1:3]": (slice(1, 3),), "x[1:99]": (slice(1, 99),),
            "x[-3:, :2]": (slice(-3, None), slice(2)), "x[::-1]": (back,), "x[..., ::-1]": (..., back),
            "x[:, 3:0:-2]": (one, slice(3, 0, -2)), "x[::2, 1::3]": (slice(None, None, 2), slice(1, None, 3)),
            "x[1]": (1,), "x[0, 1]": (0, 1), "x[0, 1, 2]": (0, 1, 2), "x[None]": (None,),
            "x[..., None, 0]": (..., None, 0),
        }  # fmt: skip
        for note, key in keys.items():
            yield Case(cls(key, given=TensorSpec(x.shape, x.dtype, "HWC")), (x,), ("HWC",), note=note)
        yield Case(cls((2,)), (np.arange(5.0),), note="vector")
        yield from cls._large_cases()

    @classmethod
    def _large_cases(cls) -> Iterator[Case]:
        """Arrays of more than 16,384 values, which DALI cuts into blocks."""
        one, back, every = slice(None), slice(None, None, -1), slice(None, None, 2)
        odd, rest = slice(7, None, 3), slice(None, -3, -1)
        of_images = [
            (back,),
            (every,),
            (one, odd),
            (one, back),
            (one, one, back),
            (odd, back),
            (rest,),
            (1, back),
            (back, 0),
        ]
        of_clips = [(back,), (every,), (one, every), (one, one, back), (one, one, one, back)]
        for shape, layout, kind, keys in (
            ((200, 130, 3), "HWC", np.uint8, of_images),
            ((3, 200, 130), "CHW", np.float32, of_images),
            ((12, 60, 40, 3), "THWC", np.uint8, of_clips),
        ):
            x = (np.arange(np.prod(shape)) * 7 % 251).astype(kind).reshape(shape)
            given = TensorSpec(shape, "bool", layout)
            yield Case(
                cls((back, every), given=given), (np.greater(x, 99),), (layout,), note=f"large {layout} of booleans"
            )
            for key in keys:
                yield Case(
                    cls(key, given=TensorSpec(shape, x.dtype, layout)), (x,), (layout,), note=f"large {layout} {key}"
                )


def checked_key(key: Any) -> tuple[Any, ...] | None:
    """A subscript as a tuple of integers, slices of integers, None and at most one Ellipsis; None if it is not one."""
    parts = tuple(plain(part) for part in (key if isinstance(key, tuple) else (key,)))
    for part in parts:
        bounds = (part.start, part.stop, part.step) if isinstance(part, slice) else () if part is Ellipsis else (part,)
        if not all(bound is None or is_integer(bound) for bound in bounds):
            return None
    return parts if sum(part is Ellipsis for part in parts) <= 1 else None


def row_key(key: tuple[Any, ...], rank: int | None) -> tuple[Any, ...] | None:
    """The subscript of each row of a batch that `key`, one of the batch, means; None if it selects rows."""
    if key[:1] == (Ellipsis,) and sum(part is not None for part in key[1:]) <= (rank or 0):
        return key
    return key[1:] if key[:1] == (slice(None),) else None


def _text(shape: Dims) -> str:
    return "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"
