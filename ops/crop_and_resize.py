"""crop_and_resize: parts of an image that boxes name, each resized to one size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import Symbol, apply, part_of
from gpupipe.ops._shared.geometry import check_pixels, check_sides, column, image_of, pair
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.stack import stack
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, as_leaf

__all__ = ["CropAndResize", "CropAndResizeAll", "crop_and_resize"]

DTYPES = tuple(map(np.dtype, ("uint8", "int8", "uint16", "int16", "float32")))
"""Dtypes whose values float32 holds exactly."""

MOST_BOXES = 32
"""Boxes of an image that are cut out in the executor's graph, where each is an operator of its own."""


@dataclass(frozen=True, slots=True)
class CropAndResize(Op):
    """Resample the box from (y1, x1) to (y2, x2) of the image, as TensorFlow does.

    0 and 1 are the centres of the first and the last pixel of an axis, and so are the corners of the result. What lies
    beyond them is `extrapolation_value`, and not mixed with the image.

    DALI adds up the positions along a line: "bilinear" differs by up to 0.005 of the step between two pixels at 700,
    and "nearest" may choose the other one of two pixels as near.

    Attributes:
        height: of the result, in pixels.
        width: of the result.
        box: (y1, x1, y2, x2); of a box with y1 > y2 the result is upside down.
        method: "bilinear" or "nearest".
        extrapolation_value: of what lies outside the image.

    Shapes: ``T[H,W,C]{HWC} -> float32[height,width,C]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "planes"
    parameters: ClassVar[tuple[str, ...]] = ("positions", "inside", "matrix")
    traceable: ClassVar[tuple[str, ...]] = ("box",)

    height: int
    width: int
    box: tuple[Any, Any, Any, Any] = (0.0, 0.0, 1.0, 1.0)
    method: str = "bilinear"
    extrapolation_value: float = 0.0

    def __post_init__(self) -> None:
        check_sides(self, "height", "width")
        for number in self.box:
            check_number("crop_and_resize", "boxes", number, -1e6, 1e6)
        if self.method not in ("bilinear", "nearest"):
            raise SpecError(f'crop_and_resize needs method "bilinear" or "nearest", got {self.method!r}')
        check_number("crop_and_resize", "extrapolation_value", self.extrapolation_value)
        object.__setattr__(self, "extrapolation_value", float(self.extrapolation_value))

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = image_of("crop_and_resize", xs[0], DTYPES)
        assert x.shape is not None  # an image {HWC} has a rank
        return TensorSpec((self.height, self.width, x.shape[2]), np.float32, "HWC")

    def size(self, hw: Array, *params: Array) -> Array:
        return np.tile(np.array([[self.height, self.width]], np.int32), (len(hw), 1))

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        check_pixels(self.name, hw)
        y1, x1, y2, x2 = (column(number, len(hw), np.float32) for number in self.box)
        rows, down = _positions(y1, y2, hw[:, 0], self.height)
        columns, across = _positions(x1, x2, hw[:, 1], self.width)
        positions = np.concatenate([rows, columns], axis=1)
        last = np.repeat(hw - 1, (self.height, self.width), axis=1)
        matrix = np.zeros((len(hw), 2, 3), np.float32)  # DALI counts from the corner of the first pixel
        matrix[:, 0, 0], matrix[:, 0, 2] = across, columns[:, 0] + 0.5 - 0.5 * across
        matrix[:, 1, 1], matrix[:, 1, 2] = down, rows[:, 0] + 0.5 - 0.5 * down
        return positions, ((positions >= 0) & (positions <= last)).astype(np.float32), matrix

    def reference(self, x: Array, positions: Array, inside: Array, matrix: Array) -> Array:
        out = self._resampled(x.astype(np.float32), positions[: self.height], positions[self.height :])
        out[inside[: self.height] == 0] = self.extrapolation_value
        out[:, inside[self.height :] == 0] = self.extrapolation_value
        return out

    def _resampled(self, f: Array, rows: Array, columns: Array) -> Array:
        """float32[H,W,C] at these positions, which count from the centre of the first pixel; the edge is repeated."""
        (rows, last), (columns, end) = (
            (np.clip(at, 0, length - 1), length - 1) for at, length in ((rows, f.shape[0]), (columns, f.shape[1]))
        )
        if self.method == "nearest":
            down, right = (np.floor(at.astype(np.float64) + 0.5).astype(np.intp) for at in (rows, columns))
            nearest: Array = f[np.minimum(down, last)][:, np.minimum(right, end)]
            return nearest
        top, left = np.floor(rows).astype(np.intp), np.floor(columns).astype(np.intp)
        right = np.minimum(left + 1, end)
        across = (columns - left).astype(np.float32)[:, None]

        def line(at: Array) -> Array:
            first = f[at][:, left]
            mixed: Array = first + (f[at][:, right] - first) * across
            return mixed

        above = line(top)
        result: Array = (
            above + (line(np.minimum(top + 1, last)) - above) * (rows - top).astype(np.float32)[:, None, None]
        )
        return result

    def dali(self, d: Any, x: Any, positions: Any, inside: Any, matrix: Any) -> Any:
        y = d.fn.warp_affine(
            d.fn.cast(x, dtype=d.dtype(np.float32)),
            matrix=matrix,
            size=[float(self.height), float(self.width)],
            interp_type=d.types.INTERP_NN if self.method == "nearest" else d.types.INTERP_LINEAR,
            inverse_map=True,
        )
        if d.device == "gpu":
            inside = inside.gpu()
        rows = d.fn.reshape(inside[: self.height], shape=[-1, 1, 1])
        columns = d.fn.reshape(inside[self.height :], shape=[1, -1, 1])
        kept = rows * columns
        y = y * kept
        if self.extrapolation_value:
            y = y + (1.0 - kept) * self.extrapolation_value
        return d.fn.reshape(y, layout="HWC")

    @classmethod
    def cases(cls) -> Iterator[Case]:
        drift = "DALI adds up positions in float32"
        boxes = {
            "part": (0.13, 0.21, 0.78, 0.9),
            "beyond": (-0.3, 0.27, 0.61, 1.4),
            "mirrored": (0.81, 0.93, 0.12, 0.07),
        }
        for note, box in boxes.items():
            for x in (noise(13, 17), noise(13, 17, 1), noise(13, 17, dtype="float32")):
                yield Case(cls(9, 8, box), (x,), ("HWC",), atol=0.05, reason=drift, note=note)
                yield Case(cls(9, 8, box, "nearest", 7.0), (x,), ("HWC",), note=f"{note}-nearest")
        yield Case(
            cls(1, 4, boxes["part"], "bilinear", -1.0), (noise(13, 17),), ("HWC",), atol=0.05, reason=drift, note="line"
        )
        yield Case(
            cls(20, 30, boxes["beyond"], "bilinear", 9.5),
            (noise(5, 6),),
            ("HWC",),
            atol=0.05,
            reason=drift,
            note="fill",
        )


@dataclass(frozen=True, slots=True)
class CropAndResizeAll(Op):
    """`CropAndResize` for any number of boxes. Runs on the host under every executor.

    Attributes:
        part: the op for one box.

    Shapes: ``T[H,W,C]{HWC}, float[N,4] -> float32[N,height,width,C]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    part: CropAndResize

    @property
    def name(self) -> str:
        return self.part.name  # the function that users call

    @property
    def ignores_layout(self) -> bool:
        return False

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        image, boxes = xs
        _check_boxes(boxes)
        if boxes.rank != 2:
            raise SpecError(f"crop_and_resize needs boxes as [N, 4] or [4], got {boxes}")
        made = self.part.infer(image)
        assert boxes.shape is not None and made.shape is not None
        return TensorSpec((boxes.shape[0], *made.shape), np.float32)

    def reference(self, x: Array, boxes: Any) -> Array:
        boxes = np.asarray(boxes, np.float32)
        if boxes.shape[1:] != (4,):
            raise ShapeError(f"crop_and_resize needs boxes as [N, 4], got {list(boxes.shape)}")
        hw = np.array([x.shape[:2]] * len(boxes), np.int32).reshape(-1, 2)
        y1, x1, y2, x2 = boxes.T
        params = CropAndResize.draw(self._with((y1, x1, y2, x2)), BatchRng(0, 0, np.zeros(len(boxes), np.uint64)), hw)
        made = [self.part.reference(x, *row) for row in zip(*params, strict=True)]
        empty = np.empty((0, self.part.height, self.part.width, x.shape[2]), np.float32)
        return np.stack(made) if made else empty

    def _with(self, box: tuple[Array, ...]) -> CropAndResize:
        first, second, third, fourth = box
        return CropAndResize(
            self.part.height,
            self.part.width,
            (first, second, third, fourth),
            self.part.method,
            self.part.extrapolation_value,
        )

    @classmethod
    def cases(cls) -> Iterator[Case]:
        boxes = np.array([[0.1, 0.2, 0.8, 0.9], [-0.3, 0.3, 0.6, 1.4]], np.float32)
        for method in ("bilinear", "nearest"):
            part = CropAndResize(5, 4, method=method)
            yield Case(cls(part), (noise(13, 17), boxes), ("HWC",), note=f"all-{method}")
        yield Case(cls(CropAndResize(5, 4)), (noise(13, 17), boxes[:0]), ("HWC",), note="none")


def _positions(low: Array, high: Array, length: Array, count: int) -> tuple[Array, Array]:
    """Positions of the pixels of an axis of the result, float32[B,count], and their distance, float32[B].

    In float32 and in TensorFlow's order. They count from the centre of the first pixel of the image.
    """
    last = (length - 1).astype(np.float32)
    if count == 1:
        middle = 0.5 * (low + high).astype(np.float64) * last
        return middle.astype(np.float32)[:, None], np.zeros(len(low), np.float32)
    step = (high - low) * last / np.float32(count - 1)
    positions: Array = (low * last)[:, None] + np.arange(count, dtype=np.float32) * step[:, None]
    return positions, step


def _check_boxes(boxes: TensorSpec) -> None:
    if boxes.dtype is bytes or boxes.dtype is None or np.dtype(boxes.dtype).kind not in "fiu":
        raise SpecError(f"crop_and_resize needs boxes as numbers, (y1, x1, y2, x2) in 0..1, got {boxes}")
    if boxes.rank not in (1, 2) or (boxes.shape or (None,))[-1] not in (4, None):
        raise SpecError(f"crop_and_resize needs boxes as [N, 4] or [4], got {boxes}")


@keywords_after("write crop_size=; the boxes are those of their image, so no box_indices as in tf.image")
def crop_and_resize(
    image: Any, boxes: Any, *, crop_size: Any, method: str = "bilinear", extrapolation_value: float = 0.0
) -> Any:
    """Cut boxes out of `image`, and resize each to `crop_size`, as `tf.image.crop_and_resize` does.

    Args:
        image: one image of up to 16 bits or float32.
        boxes: (y1, x1, y2, x2), one or several: numbers, an array, or traced. 0 and 1 are the centres of the first and
            the last pixel. Of a box with y1 > y2 the result is upside down. Here all boxes are those of `image`;
            TensorFlow's `box_indices` names an image of a batch for each.
        crop_size: (height, width) of the results in pixels, or one integer for both.
        method: "bilinear" or "nearest".
        extrapolation_value: of what lies outside the image, which boxes may reach over.

    Shapes: ``T[H,W,C]{HWC}, float[N,4] -> float32[N,height,width,C]``, which ops on images take as a clip; for one box
        ``float[4] -> float32[height,width,C]{HWC}``. Up to 32 boxes, whose number is known, are cut out by the
        executor; any others on the host.

    Raises:
        SpecError: `image` is not an image, `boxes` are no such numbers, or a parameter is out of range.

    Example:
        >>> x = np.arange(9, dtype=np.uint8).reshape(3, 3, 1)
        >>> crop_and_resize(x, [0, 0.5, 1, 1], crop_size=(2, 2))[:, :, 0]
        array([[1., 2.],
               [7., 8.]], dtype=float32)
    """
    height, width = pair("crop_and_resize", "crop_size", crop_size)
    if not all(isinstance(number, int) for number in (height, width)):
        raise PlanTypeError(f"crop_and_resize needs crop_size as plain integers, got {crop_size!r}")
    settings: dict[str, Any] = {"method": method, "extrapolation_value": extrapolation_value}
    given = boxes if isinstance(boxes, Symbol) else np.asarray(as_leaf(boxes))
    spec = given._value.spec if isinstance(given, Symbol) else TensorSpec(given.shape, given.dtype)
    count = (spec.shape or (None,))[0]
    if spec.rank == 1:
        _check_boxes(spec)
        return apply(CropAndResize(height, width, _box(given), **settings), image)
    traced = isinstance(given, Symbol) or isinstance(image, Symbol)
    if not traced or spec.rank != 2 or count is None or not 1 <= count <= MOST_BOXES:
        return apply(CropAndResizeAll(CropAndResize(height, width, **settings)), image, given)
    _check_boxes(spec)
    rows = [part_of(given, row) if isinstance(given, Symbol) else given[row] for row in range(count)]
    return stack([apply(CropAndResize(height, width, _box(row), **settings), image) for row in rows], -4)


def _box(row: Any) -> tuple[Any, Any, Any, Any]:
    y1, x1, y2, x2 = (part_of(row, i) if isinstance(row, Symbol) else float(row[i]) for i in range(4))
    return y1, x1, y2, x2
