"""warp: resample each image through an affine map; the primitive of affine and rotate, and the base of such ops.

A map leads from pixels of the result to positions in the image. Positions are (x, y) in pixels from the corner of the
image, so that pixel i of a line has its centre at i + 0.5, as in torchvision, Pillow and DALI:

    nearest     the pixel that holds the position
    bilinear    the mean of the four pixels around it, weighted by their distance

What lies outside the image is `fill` (border "constant") or the pixel of the image that is next to it ("edge").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import Symbol
from gpupipe.ops._shared.composite import Composite, Row
from gpupipe.ops._shared.fill import Fill, check_fill, fills_of
from gpupipe.ops._shared.geometry import GeometryError, image_of, images_of, one_per_image
from gpupipe.ops._shared.libraries import opencv
from gpupipe.ops._shared.resampling import rounded
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.turn import WIDENED
from gpupipe.spec import TensorSpec

__all__ = ["Warp", "Warping", "inverted", "warp_settings"]

DTYPES = tuple(map(np.dtype, ("uint8", "int8", "uint16", "int16", "float32")))
"""Dtypes whose values float32 holds exactly."""

LABELS = (*DTYPES, np.dtype("int32"))
"""Those that "nearest" takes."""

FARTHEST = 2.0**60
"""A term of a position, in 1/65536 of a pixel, beyond which it makes no difference: every image has less."""

MOST_PADDED = 4096
"""Columns of a result up to which an image is surrounded by as many on each side."""


@dataclass(frozen=True, slots=True)
class Warp(Op):
    """Resample the image at the positions ``matrix @ (x, y, 1)`` of the pixels (x, y) of the result.

    DALI adds up the positions along a line, which drifts by up to 0.005 pixels in 700: "bilinear" differs by as much of
    the step between two pixels, and "nearest" may choose the other one of two pixels as near.

    Class attributes:
        widens: the dtypes that DALI resamples as a wider one.

    Attributes:
        interpolation: "nearest" or "bilinear".
        fill: what lies outside the image, one number or one per channel; () to repeat its edge.
        expand: whether the result has a size of its own, which is the second parameter.
        widened: whether the image has one of the dtypes `widens`; a DALI node does not know its own.
        stage: the op that users call, for errors.

    Shapes: ``T[H,W,C]{HWC}, float32[2,3] -> T[H,W,C]{HWC}``, with `expand` and an int32[2] ``T[h,w,C]``.
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "sequence"

    widens: ClassVar[tuple[np.dtype[Any], ...]] = WIDENED

    interpolation: str = "bilinear"
    fill: Fill = (0.0,)
    expand: bool = False
    widened: bool = False
    stage: str = "warp"

    def __post_init__(self) -> None:
        if self.interpolation not in ("nearest", "bilinear"):
            raise SpecError(f"a warp needs interpolation 'nearest' or 'bilinear', got {self.interpolation!r}")

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("matrix", "size") if self.expand else ("matrix",)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = image_of(self.stage, xs[0], LABELS if self.interpolation == "nearest" else DTYPES)
        if self.widened != (x.dtype in self.widens):
            raise SpecError(f"{self.stage} was made for an image of another dtype than {x}")
        height, width, channels = x.shape or (None, None, None)
        check_fill(self.stage, self.fill, x)
        if x.dtype == np.int32:
            if any(abs(number) >= 1 << 24 for number in self.fill):
                raise SpecError(f"{self.stage} needs a fill below 2**24, got {self.fill} for {x}")
            if len(set(self.fill)) > 1:
                raise SpecError(f"{self.stage} needs one fill for all channels of {x}, got {self.fill}")
        return TensorSpec((None, None, channels) if self.expand else (height, width, channels), x.dtype, "HWC")

    def size(self, hw: Array, *params: Array) -> Array:
        return params[1] if self.expand else hw

    def motion(self, hw: Array, *params: Array) -> Array:
        return inverted(self.stage, params[0])

    def reference(self, x: Array, matrix: Array, size: Array | None = None) -> Array:
        height, width = (int(length) for length in (x.shape if size is None else size)[:2])
        if self.interpolation == "bilinear":
            return self.resampled(x, *self.positions(matrix, (height, width)))
        if [line[0] for line in matrix.tolist()] == [1, 0] and width <= MOST_PADDED:
            return self._shifted(x, *self.pixels(matrix, (height, 1)), width)
        return self._taken(x, *self.pixels(matrix, (height, width)))

    def resampled(self, x: Array, columns: Array, rows: Array) -> Array:
        """The image at these positions: x and y, float32[h,w] each."""
        if self.interpolation == "nearest":
            return self._taken(x, np.floor(columns), np.floor(rows))
        around = self._surrounded(x.astype(np.float32), 1, 2, 2)
        line = around.shape[1]
        (top, down), (left, right) = self._split(rows, x.shape[0]), self._split(columns, x.shape[1])
        first, flat = top * line + left, around.reshape(len(around) * line, x.shape[2])
        out = np.take(flat, first, 0)
        out += (np.take(flat, first + 1, 0) - out) * right
        below = np.take(flat, first + line, 0)
        below += (np.take(flat, first + line + 1, 0) - below) * right
        below -= out
        below *= down
        out += below
        return rounded(out, x.dtype)

    def positions(self, matrix: Array, size: Sequence[int] | Array) -> tuple[Array, Array]:
        """The positions in the image of all pixels of a result: x and y, float32[h,w] each."""
        across, down = np.arange(int(size[1])) + 0.5, np.arange(int(size[0]))[:, None] + 0.5
        (a, b, c), (e, f, g) = matrix.astype(np.float64)
        # each sum is exact for whole and half pixels, whatever the rounding: a quarter turn moves pixels onto pixels
        columns = (a * across).astype(np.float32) + (b * down + c).astype(np.float32)
        return columns, (e * across).astype(np.float32) + (f * down + g).astype(np.float32)

    def pixels(self, matrix: Array, size: Sequence[int] | Array) -> tuple[Array, Array]:
        """The pixels that hold the positions of "nearest": x and y, integers[h,w] each, also outside of the image.

        The two terms of a position are rounded to 1/65536 of a pixel: their sum is exact.
        """
        width, height = int(size[1]), int(size[0])
        columns, rows = (_floors(a, b, c, width, height) for a, b, c in matrix.tolist())
        return columns, rows

    def _taken(self, x: Array, columns: Array, rows: Array) -> Array:
        """Some pixels of the image: x and y, whole numbers[h,w] each, which are overwritten."""
        around = self._surrounded(x, 1, 1)
        line = around.shape[1]
        for numbers, length in ((columns, x.shape[1]), (rows, x.shape[0])):
            np.clip(numbers, -1, length, out=numbers)
        first = rows.astype(np.int32, copy=False).astype(np.intp)  # from floats in half the time of one step
        first *= line
        first += columns.astype(np.int32, copy=False)
        first += line + 1  # the first pixel of the image
        nearest: Array = np.take(around.reshape(len(around) * line, x.shape[2]), first, 0)
        return nearest

    def _shifted(self, x: Array, starts: Array, rows: Array, width: int) -> Array:
        """`_taken` where each line of the result is a run of a line of the image, from x, int[h,1], of y, int[h,1]."""
        starts = np.clip(starts[:, 0], -width, x.shape[1])
        before, after = -int(starts.min(initial=0)), int(starts.max(initial=0)) + width - x.shape[1]
        around = self._surrounded(x, before, max(after, 0))
        if not (around.size and width and len(starts)):
            return np.empty((len(starts), width, x.shape[2]), x.dtype)
        lines = around.reshape(len(around), -1)
        runs = np.lib.stride_tricks.sliding_window_view(lines, width * x.shape[2], axis=1)[:, :: x.shape[2]]
        found: Array = runs[np.clip(rows[:, 0], -1, x.shape[0]) + 1, starts + before]
        return found.reshape(len(starts), width, x.shape[2])

    def _surrounded(self, x: Array, left: int, right: int, below: int = 1) -> Array:
        """The image with what lies around it, so many pixels on these sides, and one line above."""
        height, width, channels = x.shape
        if not self.fill:
            return np.pad(x, ((1, below), (left, right), (0, 0)), mode="edge")
        fill = self.fill[0] if len(set(self.fill)) == 1 else self.fill
        out = np.full((height + 1 + below, left + width + right, channels), fill, x.dtype)
        out[1 : 1 + height, left : left + width] = x
        return out

    def _split(self, positions: Array, length: int) -> tuple[Array, Array]:
        """The same for the first of two pixels around a position, and the weight of the second."""
        centres = np.clip(positions - np.float32(0.5), -1, length)
        first = np.floor(centres)
        return (first + 1).astype(np.intp), (centres - first)[..., None]

    def fast(self, x: Array, matrix: Array, size: Array | None = None) -> Array:
        cv2 = opencv()
        height, width = (int(length) for length in (x.shape if size is None else size)[:2])
        if not _takes(cv2, x, height, width):
            return self.reference(x, matrix, size)
        if self.interpolation == "nearest":
            return self._nearest_by_opencv(cv2, x, *self.pixels(matrix, (height, width)))
        out = self._by_opencv(cv2, x, matrix.astype(np.float64), (width, height), self._border(cv2, x))
        made: Array = np.asarray(out).reshape(height, width, x.shape[2])
        return made

    def remapped(self, x: Array, columns: Array, rows: Array) -> Array:
        """`resampled` by OpenCV, where it is as exact."""
        cv2 = opencv()
        if not _takes(cv2, x, *columns.shape):
            return self.resampled(x, columns, rows)
        if self.interpolation == "nearest":
            return self._nearest_by_opencv(cv2, x, np.floor(columns), np.floor(rows))
        half = np.float32(0.5)
        out = cv2.remap(x, columns - half, rows - half, cv2.INTER_LINEAR, **self._border(cv2, x))
        made: Array = np.asarray(out).reshape(*columns.shape, x.shape[2])
        return made

    def _nearest_by_opencv(self, cv2: Any, x: Array, columns: Array, rows: Array) -> Array:
        """`_taken` by OpenCV, which by itself takes the even one of two pixels as near."""
        ends = ((columns, x.shape[1]), (rows, x.shape[0]))
        indices = [np.clip(numbers, -1, length).astype(np.int16) for numbers, length in ends]
        out = cv2.remap(x, np.stack(indices, axis=-1), None, cv2.INTER_NEAREST, **self._border(cv2, x))
        made: Array = np.asarray(out).reshape(*columns.shape, x.shape[2])
        return made

    def _border(self, cv2: Any, x: Array) -> dict[str, Any]:
        edge = cv2.BORDER_CONSTANT if self.fill else cv2.BORDER_REPLICATE
        return {"borderMode": edge, "borderValue": (self.fill or (0.0,)) * (1 if len(self.fill) > 1 else x.shape[2])}

    def _by_opencv(self, cv2: Any, x: Array, m: Array, size: tuple[int, int], how: dict[str, Any]) -> Any:
        m[:, 2] += m[:, :2].sum(axis=1) * 0.5 - 0.5  # OpenCV's positions count from the centre of the first pixel
        return cv2.warpAffine(x, m, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, **how)

    def dali(self, d: Any, x: Any, matrix: Any, size: Any = None) -> Any:
        wide, shift = x, None
        if len(set(self.fill)) > 1:  # DALI fills all channels alike
            shift = d.types.Constant(np.array(self.fill, np.float32), device=d.device)
            wide = d.fn.cast(x, dtype=d.dtype(np.float32)) - shift
        elif self.widened:
            wide = d.fn.cast(x, dtype=d.dtype(np.int32))
        how = {} if size is None else {"size": d.fn.cast(size, dtype=d.dtype(np.float32))}
        if self.fill:
            how["fill_value"] = self.fill[0] if shift is None else 0.0
        warped = d.fn.warp_affine(
            wide,
            matrix=matrix,
            interp_type=d.types.INTERP_NN if self.interpolation == "nearest" else d.types.INTERP_LINEAR,
            inverse_map=True,
            **how,
        )
        if shift is not None:
            warped = warped + shift
        return warped if wide is x else d.fn.cast_like(warped, x)


def _floors(a: float, b: float, c: float, width: int, height: int) -> Array:
    """The integers below ``a x + (b y + c)`` for all centres (x, y) of pixels: int32 or int64[height,width]."""
    small = abs(a) * width + abs(b) * height + abs(c) < 1 << 14
    across, down = (np.arange(0.5, length) for length in (width, height))
    across *= a * 65536
    down *= b * 65536
    down += c * 65536
    terms = [np.rint(term, out=term) for term in (across, down)]
    if not small:
        terms = [np.clip(np.nan_to_num(term, nan=FARTHEST), -FARTHEST, FARTHEST) for term in terms]
    right, low = (term.astype(np.int32 if small else np.int64) for term in terms)
    sums: Array = right + low[:, None]
    sums >>= 16
    return sums


def inverted(who: str, matrix: Array) -> Array:
    """The map from an image to the result, from the one that leads back, float[2,3] or float[3,3]: float64[3,3].

    Raises:
        GeometryError: the result shows a line or a point of the image alone.
    """
    back = np.eye(3)
    back[: len(matrix)] = matrix
    try:
        made: Array = np.linalg.inv(back)
    except np.linalg.LinAlgError:
        raise GeometryError(f"{who} needs a map that can be inverted, to move boxes or keypoints") from None
    return made


def _takes(cv2: Any, x: Array, height: int, width: int) -> bool:
    """Whether OpenCV resamples such an image as exactly as `Warp` does; before 5.0 it rounds positions to 1/32."""
    return (
        int(cv2.__version__.split(".")[0]) >= 5
        and x.dtype.name in ("uint8", "uint16", "float32")
        and x.shape[2] in (1, 3, 4)
        and min(*x.shape, height, width) > 0
        and max(*x.shape, height, width) < 1 << 15
    )


@dataclass(frozen=True, slots=True)
class Warping(Composite):
    """Base of the ops that draw an affine map. Subclasses define `draw`, which gives a matrix and, to expand, a size.

    Attributes:
        interpolation: "nearest" or "bilinear", one per image.
        fill: what lies outside, one per image; () to repeat the edge.
        widened: for each image whether `Warp` widens it; () for none.
    """

    parameters: ClassVar[tuple[str, ...]] = ("matrix",)
    part: ClassVar[type[Warp]] = Warp

    interpolation: tuple[str, ...] = field(default=("nearest",), kw_only=True)
    fill: tuple[Fill, ...] = field(default=((0.0,),), kw_only=True)
    widened: tuple[bool, ...] = field(default=(), kw_only=True, repr=False)

    @property
    def expands(self) -> bool:
        """Whether results have a size of their own."""
        return False

    def row(self, image: int = 0) -> Row:
        widened = any(self.widened[image : image + 1])
        part = self.part(self.interpolation[image], self.fill[image], self.expands, widened, self.name)
        return ((part, (0, 1) if self.expands else (0,)),)

    @classmethod
    def warped_cases(cls, *settings: Any, note: str = "", **more: Any) -> Iterator[Case]:
        """Cases of an op with these settings, for all interpolations, dtypes and fills."""
        step = "next to n + 0.5 integers round to either side"
        drift = "DALI adds up positions in float32"
        x = noise(13, 17)
        notes = f"{note}-" if note else ""
        for method, whole, real in (("nearest", 0.0, 0.0), ("bilinear", 1.0, 0.05)):
            near = {"interpolation": (method,), **more}
            yield _case(cls(*settings, **near), x, whole, step, f"{notes}{method}")
            yield _case(cls(*settings, **near), x.astype(np.float32), real, drift, f"{notes}{method}")
            for fill in ((100.0,), (1.0, 2.0, 250.0)):
                op = cls(*settings, fill=(fill,), **near)
                yield _case(op, x, whole, step, f"{notes}{method}-fill-{len(fill)}")
        wide = cls(*settings, interpolation=("bilinear",), widened=(True,), **more)
        yield _case(wide, x.astype(np.uint16) * 257, 30, f"levels of 65535: {drift}", f"{notes}widened")
        deep = (x.astype(np.int16) - 128) * 200
        of_deep = cls(*settings, interpolation=("bilinear",), widened=(np.dtype(np.int16) in cls.part.widens,), **more)
        yield _case(of_deep, deep, 24, f"levels of 51000: {drift}", f"{notes}int16")
        if cls.part is Warp:
            labels = noise(9, 12, 1).astype(np.int32)
            yield _case(cls(*settings, interpolation=("nearest",), **more), labels, 0, "", f"{notes}labels")
        both = cls(*settings, interpolation=("bilinear", "nearest"), fill=((9.0,), (255.0,)), images=2, **more)
        mask = noise(13, 17, 1)
        yield Case(both, (x, mask), ("HWC", "HWC"), atol=1, reason=step, note=f"{notes}with-mask")


def _case(op: Op, x: Array, atol: float, reason: str, note: str) -> Case:
    return Case(op, (x,), ("HWC",), atol=atol, reason=reason if atol else "", note=note)


def warp_settings(who: str, image: Any, interpolation: Any, fill: Any, part: type[Warp] = Warp) -> dict[str, Any]:
    """The settings of `Warping` from what users write.

    Args:
        who: the op, for messages.
        image: one image, a tuple of images, or a Sample.
        interpolation: one for all, or one per image; of a Sample that of its image.
        fill: see `fills_of`.
        part: the primitive.

    Raises:
        PlanTypeError: a fill is no number.
        SpecError: an interpolation is unknown, or their number is wrong.
    """
    images, methods = images_of(image), one_per_image(who, "interpolation", interpolation, image)
    for method in methods:
        if method not in ("nearest", "bilinear"):
            raise SpecError(f"{who} needs interpolation 'nearest' or 'bilinear', got {method!r}")
    dtypes = [x._value.spec.dtype if isinstance(x, Symbol) else np.asarray(x).dtype for x in images]
    widened = tuple(dtype in part.widens for dtype in dtypes)
    return {"interpolation": methods, "fill": fills_of(who, image, fill), "widened": widened, "images": len(images)}
