"""geometry: shared by ops that move pixels: image specs, columns of numbers, windows and their errors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Arg, Array, Op, check_number
from gpupipe.graph.symbols import Symbol, part_of
from gpupipe.integers import is_integer, plain
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec

__all__ = [
    "GeometryError",
    "check_pixels",
    "check_sides",
    "column",
    "full",
    "image_of",
    "images_of",
    "is_traced_number",
    "layout_of",
    "mirrored_positions",
    "one_per_image",
    "pair",
    "several",
    "shifted",
    "smallest_and_largest",
    "static",
    "window",
    "windows_inside",
]

MOVABLE = tuple(map(np.dtype, "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float32 float64".split()))
"""The dtypes that DALI's slice and flip take."""


MOST_SIDE = 1 << 24
"""Pixels that a side of a result may have; `MOST_PIXELS` in `graph/op.py` is how many the whole of it may."""


class GeometryError(ShapeError):
    """A window or size that does not fit the image."""


def check_sides(op: Op, *names: str, low: int = 1, several: bool = False, optional: bool = False) -> None:
    """Check fields of an op that are lengths in pixels.

    Args:
        op: it.
        names: of the fields.
        low: the smallest length.
        several: whether they are tuples of lengths.
        optional: whether they may be None.

    Raises:
        PlanTypeError: one is no integer.
        SpecError: it is below `low` or above `MOST_SIDE`, or traced where it may not be.
        ShapeError: at run time: that of a row is.
    """
    for name in names:
        value = getattr(op, name)
        for length in value if several else () if optional and value is None else (value,):
            check_number(op.stage, name, length, low, MOST_SIDE, integer=True, traceable=name in op.traceable)


def check_pixels(who: str, hw: Array) -> None:
    """Refuse images without pixels: DALI's blur and warp of one end the process.

    Raises:
        GeometryError: a side of some image, int[B,2], is 0. The error names the rows.
    """
    bad = np.flatnonzero(hw.min(axis=1) < 1).tolist()
    if bad:
        sizes = {row: f"{hw[row, 0]}x{hw[row, 1]}" for row in bad}
        raise GeometryError.of_rows({row: f"{who} needs images with pixels, got one of {sizes[row]}" for row in bad})


def image_of(who: str, x: TensorSpec, dtypes: tuple[np.dtype[Any], ...] = MOVABLE) -> TensorSpec:
    """Check that `x` is an image {HWC} of one of these dtypes; return its spec with the layout filled in.

    Raises:
        SpecError: `x` is something else.
    """
    x = x.require(who, layout="HWC")
    if x.dtype not in dtypes:
        names = ", ".join(map(str, dtypes))
        raise SpecError(f"{who} needs an image of {names}, got {x}; convert it first with ops.cast")
    return x


def images_of(image: Any) -> tuple[Any, ...]:
    """One image, a tuple of images, or the image and the masks of a `Sample`, as a tuple.

    Raises:
        PlanTypeError: a tuple has a Sample in it, or nothing.
    """
    if isinstance(image, Sample):
        return image.images
    if isinstance(image, tuple) and not image:
        raise PlanTypeError("an op needs an image, or a tuple of at least one, got an empty tuple")
    if isinstance(image, tuple) and any(isinstance(x, Sample) for x in image):
        raise PlanTypeError(
            "an op needs one Sample or a tuple of images, got a tuple with a Sample; see Sample(masks=)"
        )
    return image if isinstance(image, tuple) else (image,)


def layout_of(image: Any) -> Literal["HWC", "CHW"]:
    """The layout of a traced image; HWC for an array, or if unknown."""
    image = image.image if isinstance(image, Sample) else image
    return "CHW" if isinstance(image, Symbol) and image._value.spec.layout in ("CHW", "TCHW") else "HWC"


def pair(who: str, name: str, value: Any) -> tuple[Any, Any]:
    """Two numbers (plain or traced) from a sequence, or one number twice: an integer, or a traced one.

    Raises:
        PlanTypeError: `value` is anything else.
    """
    value = plain(value)
    if is_integer(value) or is_traced_number(value):
        return value, value
    if isinstance(value, (tuple, list, np.ndarray)) and getattr(value, "ndim", 1) == 1 and len(value) == 2:
        first, second = (item.item() if isinstance(item, np.generic) else item for item in value)
        return first, second
    if isinstance(value, Symbol):
        return part_of(value, 0), part_of(value, 1)
    raise PlanTypeError(f"{who} needs {name} as two numbers, got {value!r}")


def smallest_and_largest(who: str, name: str, value: Any) -> tuple[Any, Any]:
    """Two numbers, plain or traced, as `pair`; one number is refused: it may be a size that stands in their place.

    Raises:
        PlanTypeError: `value` is anything else.
    """
    if is_integer(value := plain(value)) or is_traced_number(value):
        raise PlanTypeError(f"{who} needs {name} as two numbers, the smallest and the largest, got {value!r}")
    return pair(who, name, value)


def several(who: str, name: str, value: Any, what: str = "a list of numbers") -> tuple[Any, ...]:
    """Numbers, plain or traced, from a list of them.

    Raises:
        PlanTypeError: `value` is anything else.
    """
    if isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        return tuple(map(plain, value))
    got = "a traced value" if isinstance(value, Symbol) else repr(value)
    raise PlanTypeError(f"{who} needs {name} as {what}, got {got}")


def one_per_image(who: str, name: str, value: Any, image: Any) -> tuple[str, ...]:
    """The names of methods for some images, from one for all or a sequence of one for each.

    Args:
        who: the op, for messages.
        name: of its argument.
        value: what a user gives: of a `Sample` the method of its image, as masks have "nearest".
        image: one image, a tuple of images, or a Sample.

    Raises:
        PlanTypeError: `value` is something else.
        SpecError: the number of names is another.
    """
    count = len(images_of(image))
    if isinstance(image, Sample) and isinstance(value, str):
        return (value, *("nearest",) * (count - 1))
    names = (value,) * count if isinstance(value, str) else value
    if not isinstance(names, (tuple, list)) or not all(isinstance(item, str) for item in names):
        raise PlanTypeError(f"{who} needs a name for {name}, or one per image, got {value!r}")
    if len(names) != count:
        raise SpecError(f"{who} needs one {name}, or one per image, got {names}")
    return tuple(names)


def is_traced_number(value: Any) -> bool:
    """Whether a value is one number for each image, known when the chain runs."""
    return isinstance(value, Symbol) and value._value.spec.rank == 0


def static(value: Any) -> int | None:
    """An integer, or None for a number that is known only at run time."""
    return None if value is None or isinstance(value, (Arg, np.ndarray, Symbol)) else int(value)


def column(value: Any, count: int, dtype: Any = np.int64) -> Array:
    """A number, or one per row, as dtype[count]."""
    array = np.asarray(value, dtype)
    return np.full(count, array) if array.ndim == 0 else np.broadcast_to(array, (count,))


def full(first: Any, second: Any, count: int) -> Array:
    """Two numbers, or two per row, as int32[count,2]."""
    out = np.empty((count, 2), np.int32)
    out[:, 0], out[:, 1] = np.asarray(first, np.int64), np.asarray(second, np.int64)
    return out


def window(y: Any, x: Any, height: Any, width: Any, count: int) -> tuple[Array, Array]:
    """Offsets and shapes of windows: int32[count,2] each, (height, width) last."""
    return full(y, x, count), full(height, width, count)


def shifted(by: Array) -> Array:
    """The map of positions that are shifted by (rows, columns): float64[3,3]."""
    made = np.eye(3)
    made[:2, 2] = by[::-1]
    return made


def mirrored_positions(hw: Array, columns: bool, lines: bool) -> Array:
    """The map of positions of an image of this size that is mirrored left-right, up-down or both: float64[3,3]."""
    made = np.eye(3)
    for axis, mirror in enumerate((columns, lines)):
        if mirror:
            made[axis, axis], made[axis, 2] = -1, hw[1 - axis]
    return made


def windows_inside(who: str, hw: Array, start: Array, shape: Array) -> tuple[Array, Array]:
    """Check that windows are not empty and lie inside their images; return them.

    Raises:
        GeometryError: with a reason for each row whose window does not fit.
    """
    end = start.astype(np.int64) + shape
    bad = np.flatnonzero(((start < 0) | (shape < 1) | (end > hw)).any(axis=1)).tolist()
    if bad:
        reasons = {}
        for row in bad:
            (y, x), (h, w), (height, width) = start[row].tolist(), shape[row].tolist(), hw[row].tolist()
            window = f"{h}x{w} at ({y}, {x}) of an image of {height}x{width}"
            reasons[row] = f"{who} needs a window inside the image, got {window}"
        raise GeometryError.of_rows(reasons)
    return start, shape
