"""resize: resize each image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.geometry import check_pixels, check_sides, full, image_of, is_traced_number, pair, static
from gpupipe.ops._shared.libraries import Part, averaged, interpolated
from gpupipe.ops._shared.resampling import MANY, METHODS, SUPPORT, resampled, rounded
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.travel import moved
from gpupipe.ops.sample import Sample
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["Resampling", "Resize", "ResizeArea", "nearest_of", "resize"]

T = TypeVar("T")

DTYPES = tuple(map(np.dtype, ("uint8", "uint16", "int16", "float32")))
"""The dtypes that DALI's resize takes."""

INTERPOLATION = {"bilinear": "LINEAR", "bicubic": "CUBIC", "lanczos3": "LANCZOS3", "nearest": "NN"}
PILLOW = {"bilinear": "BILINEAR", "bicubic": "BICUBIC", "lanczos3": "LANCZOS"}


def check_methods(who: str, methods: tuple[str, ...], images: int) -> None:
    """Check the methods of an op that resizes inside an executor's graph.

    Raises:
        SpecError: there is not one per image, or one is unknown or runs on the host only.
    """
    if len(methods) != images:
        raise SpecError(f"{who} needs one interpolation, or one per image, got {methods}")
    for method in methods:
        if method not in INTERPOLATION:
            raise SpecError(f"{who} needs interpolation from {', '.join(INTERPOLATION)}, got {method!r}")


@dataclass(frozen=True, slots=True)
class Resampling(Op):
    """Base of all resizers: the target size and the resampling rule.

    Attributes:
        height: of the result; None where another op draws it.
        width: as `height`.
        method: one of `METHODS`.
        preserve_aspect_ratio: height and width are bounds; the image keeps its shape.
        antialias: stretch the kernel when shrinking.
        keep_dtype: whether integers stay integers, rounded, as in torchvision, instead of becoming float32.
        stage: the op that users call, for errors.

    Shapes: ``T[H,W,C]{HWC}, int32[2] -> float32[h,w,C]{HWC}``, T for "nearest" and with `keep_dtype`.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "planes"
    parameters: ClassVar[tuple[str, ...]] = ("size",)
    traceable: ClassVar[tuple[str, ...]] = ("height", "width")

    height: Any = None
    width: Any = None
    method: str = "bilinear"
    preserve_aspect_ratio: bool = False
    antialias: bool = False
    keep_dtype: bool = False
    stage: str = "resize"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise SpecError(f"{self.stage} needs method from {', '.join(METHODS)}, got {self.method!r}")
        check_sides(self, "height", "width", optional=True)  # None where another op draws the size

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = image_of(self.stage, xs[0], DTYPES)
        assert x.shape is not None  # an image {HWC} has a rank
        height, width = static(self.height), static(self.width)
        if self.preserve_aspect_ratio:
            known = None not in (height, width, *x.shape[:2])
            height, width = self._fitted(np.array([x.shape[:2]]))[0].tolist() if known else (None, None)
        dtype = x.dtype if self.keep_dtype or self.method == "nearest" else np.float32
        return TensorSpec((height, width, x.shape[2]), dtype, "HWC")

    def size(self, hw: Array, *params: Array) -> Array:
        return params[0]

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        check_pixels(self.stage, hw)
        return (self._fitted(hw) if self.preserve_aspect_ratio else full(self.height, self.width, len(hw)),)

    def motion(self, hw: Array, *params: Array) -> Array:
        height, width = params[0] / hw
        return np.diag((width, height, 1.0))

    def _fitted(self, hw: Array) -> Array:
        """The largest sizes in the bounds that keep the aspect ratio; in float32 and rounded as in TensorFlow."""
        scale = (full(self.height, self.width, len(hw)).astype(np.float32) / hw.astype(np.float32)).min(axis=1)
        size: Array = np.maximum(np.rint(scale[:, None] * hw.astype(np.float32)), 1)
        return size.astype(np.int32)

    def reference(self, x: Array, size: Array, box: Array | None = None) -> Array:
        """`box` is the part of the image that is resized, see `ResizeWindow`."""
        height, width = size.tolist()
        rows, columns = (None, None) if box is None else zip(box[:2].tolist(), box[2:].tolist(), strict=True)
        if not self.keep_dtype or self.method == "nearest":
            return resampled(resampled(x, 0, height, *self._resampling, rows), 1, width, *self._resampling, columns)
        if x.dtype == np.uint8 and self.antialias:
            return self._pillow(x, height, width, rows or (0, x.shape[0]), columns or (0, x.shape[1]))
        wide = resampled(x, 1, width, *self._resampling, columns)
        if self._in_two_steps:
            wide = rounded(wide, x.dtype)
        return rounded(resampled(wide, 0, height, *self._resampling, rows), x.dtype)

    def fast(self, x: Array, size: Array, out: Array | None = None) -> Array:
        """The result, in `out`, such as a row of the batch, where that saves a copy."""
        height, width = size.tolist()
        whole = self.keep_dtype and x.dtype != np.float32
        if not x.size or x.shape[2] > 4 or self.method == "nearest" or (whole and self.antialias and x.itemsize > 1):
            return self.reference(x, size)
        if self.antialias:
            return averaged(x, height, width, self.method, x.dtype if whole else np.dtype(np.float32), out)
        many = x.size > MANY and 4 * height * width < x.shape[0] * x.shape[1]  # all of them as float32 are many bytes
        if self.method != "bilinear" or many:
            return self.reference(x, size)
        if whole:
            return rounded(interpolated(x, height, width), x.dtype)
        return interpolated(x, height, width, out)

    @property
    def _resampling(self) -> tuple[str, bool]:
        return self.method, self.antialias

    @property
    def _in_two_steps(self) -> bool:
        """Whether values are rounded after the first of the two axes, as Pillow does.

        Kernels with negative lobes overshoot 0..255, so this clips, by up to 31. A triangle does not.
        """
        return self.keep_dtype and self.antialias and self.method in ("bicubic", "lanczos3")

    def _pillow(self, x: Array, height: int, width: int, rows: Part, columns: Part) -> Array:
        from PIL import Image

        (top, bottom), (left, right) = rows, columns
        steps: list[tuple[tuple[int, int], tuple[float, float, float, float]]]
        steps = [((width, height), (left, top, right, bottom))]
        if self._in_two_steps:  # one axis at a time, so that the order does not depend on the version of Pillow
            steps = [((width, x.shape[0]), (left, 0, right, x.shape[0])), ((width, height), (0, top, width, bottom))]
        resample = Image.Resampling[PILLOW[self.method]]

        def resize(plane: Array) -> Array:
            image = Image.fromarray(plane)
            for size, box in steps:
                image = image.resize(size, resample, box)
            return np.array(image)

        if x.shape[2] == 3:
            return resize(x)
        # Channel by channel: Pillow would treat a fourth channel as transparency and multiply by it.
        out = np.empty((height, width, x.shape[2]), x.dtype)
        for channel in range(x.shape[2]):
            out[:, :, channel] = resize(x[:, :, channel])
        return out


@dataclass(frozen=True, slots=True)
class Resize(Resampling):
    """Resize by every method but "area".

    DALI agrees within 1 of 255 where integers are rounded (2 with the kernels that overshoot), else within 0.4 (its
    kernels are tables). With bilinear and antialias the outermost ring of pixels differs by up to 18: DALI repeats edge
    pixels, the reference ignores what lies outside.
    """

    def __post_init__(self) -> None:
        Resampling.__post_init__(self)
        check_methods(self.stage, (self.method,), 1)

    def dali(self, d: Any, x: Any, size: Any, box: Any = None) -> Any:
        if self.method == "nearest":
            return self._nearest(d, self._nearest(d, x, size[1:2]), size[0:1])
        if self.method == "bilinear":
            region = {} if box is None else {"roi_start": box[0:2], "roi_end": box[2:4]}
            floats = _floats(d, size) if self._constant is None else self._constant
            return d.fn.resize(x, size=floats, **self._how(d, self.keep_dtype), **region)
        if not self._in_two_steps:
            y = self._inside_zeros(d, x, size, box)
            return d.fn.cast_like(y, x) if self.keep_dtype else y
        height = d.fn.cast(x.shape()[0:1], dtype=d.dtype(np.int32))
        across = down = None
        if box is not None:
            rows, columns = (d.fn.cast(sides, dtype=d.dtype(np.float32)) for sides in (height, size[1:2]))
            across = d.fn.cat(rows * 0.0, box[1:2], rows, box[3:4], axis=0)
            down = d.fn.cat(box[0:1], rows * 0.0, box[2:3], columns, axis=0)
        wide = self._inside_zeros(d, x, d.fn.cat(height, size[1:2], axis=0), across)
        return d.fn.cast_like(self._inside_zeros(d, d.fn.cast_like(wide, x), size, down), x)

    def mirrored_dali(self, d: Any, x: Any, size: Any, mirror: Any) -> Any:
        """A bilinear resize by DALI, which mirrors left-right where a width is negative.

        Args:
            d: what `Op.dali` gets.
            x: the images.
            size: int32[2] for each.
            mirror: 1 for an image to mirror, else 0.
        """
        if self._constant is None:
            floats = _floats(d, size)
            height, width = floats[0], floats[1]
        else:
            height, width = self._constant
        across = width - mirror * (2 * width)
        return d.fn.resize(x, resize_y=height, resize_x=across, **self._how(d, self.keep_dtype))

    @property
    def _constant(self) -> list[float] | None:
        """The size of every result if it is known before the data is seen."""
        height, width = static(self.height), static(self.width)
        if height is None or width is None or self.preserve_aspect_ratio:
            return None
        return [float(height), float(width)]

    def _nearest(self, d: Any, x: Any, width: Any) -> Any:
        """Resize the width and swap the axes; done twice, that resizes both axes.

        DALI adds up positions along the height, which drifts by whole pixels; along the width it multiplies. Where a
        centre lies exactly between two pixels the reference takes the later one, hence the shift by half of the
        smallest distance that any other centre can have from such a point.
        """
        hw = d.fn.cast(x.shape()[0:2], dtype=d.dtype(np.float32))
        shift = 0.25 / d.fn.cast(width, dtype=d.dtype(np.float32))
        wide = self._resize(
            d,
            x,
            d.fn.cat(d.fn.cast(hw[0:1], dtype=d.dtype(np.int32)), width, axis=0),
            keep=True,
            roi_start=d.fn.cat(hw[0:1] * 0.0, shift, axis=0),
            roi_end=d.fn.cat(hw[0:1], hw[1:2] + shift, axis=0),
        )
        return d.fn.transpose(wide, perm=[1, 0, 2], transpose_layout=False)

    def _inside_zeros(self, d: Any, x: Any, size: Any, box: Any = None) -> Any:
        """Ignore what lies outside the image, where DALI would repeat the edge.

        With zeros around the image, the weighted sum is that of the pixels inside. The same sum over ones gives the sum
        of their weights.
        """
        hw = d.fn.cast(x.shape()[0:2], dtype=d.dtype(np.int32))
        margin = ((hw + size - 1) // size) * SUPPORT[
            self.method
        ] + 1  # the reach of a stretched kernel, and one to spare
        region = {"roi_start": d.fn.cast(margin, dtype=d.dtype(np.float32))}
        region["roi_end"] = d.fn.cast(margin + hw, dtype=d.dtype(np.float32))
        if box is not None:
            region = {"roi_start": region["roi_start"] + box[0:2], "roi_end": region["roi_start"] + box[2:4]}

        def total(values: Any) -> Any:
            padded = d.fn.slice(
                values, -margin, hw + 2 * margin, axis_names="HW", out_of_bounds_policy="pad", fill_values=0
            )
            return self._resize(d, padded, size, keep=False, **region)

        return total(x) / total(d.fn.cast_like(d.fn.slice(x, 0, 1, axes=[2]) * 0 + 1, x))

    def _resize(self, d: Any, x: Any, size: Any, *, keep: bool, **region: Any) -> Any:
        return d.fn.resize(x, size=_floats(d, size), **self._how(d, keep), **region)

    def _how(self, d: Any, keep: bool) -> dict[str, Any]:
        """The arguments of DALI's resize but sizes and regions; `keep` the dtype of the images, or make float32."""
        how = {"interp_type": getattr(d.types, f"INTERP_{INTERPOLATION[self.method]}"), "antialias": self.antialias}
        return how if keep else {**how, "dtype": d.dtype(np.float32)}

    @classmethod
    def cases(cls) -> Iterator[Case]:
        big, small, gray = noise(61, 83), noise(24, 31), noise(40, 33, 1)
        ring = "DALI repeats edge pixels, TensorFlow and Pillow ignore what lies outside: the outermost ring differs"
        table = "DALI's kernels are tables of 1024 entries"
        single = "float32 rounding of weights"
        steps = "float32 sums next to n + 0.5 round to either side"
        for x, size, note in ((big, (24, 31), "down"), (small, (61, 83), "up"), (gray, (17, 48), "mixed")):
            f = x.astype(np.float32)
            yield Case(cls(*size, "nearest"), (x,), ("HWC",), note=f"{note}-nearest")
            yield Case(cls(*size), (x,), ("HWC",), atol=0.02, reason=single, note=note)
            yield Case(cls(*size), (f,), ("HWC",), atol=0.02, reason=single, note=note)
            yield Case(cls(*size, antialias=True), (x,), ("HWC",), atol=0.02, ring=18, reason=ring, note=f"{note}-aa")
            for method in ("bicubic", "lanczos3"):
                for antialias in (False, True):
                    op = cls(*size, method, antialias=antialias)
                    yield Case(op, (x,), ("HWC",), atol=0.4, reason=table, note=f"{note}-{method}" + "-aa" * antialias)
            for method in ("bilinear", "bicubic", "lanczos3"):
                op = cls(*size, method, antialias=True, keep_dtype=True)
                bounds = (
                    {"atol": 1, "ring": 18, "reason": ring} if method == "bilinear" else {"atol": 2, "reason": steps}
                )
                yield Case(op, (x,), ("HWC",), note=f"{note}-{method}-keep", **bounds)  # type: ignore[arg-type]
        yield Case(cls(5, 4, keep_dtype=True), (big,), ("HWC",), atol=1, reason=steps, note="keep")
        yield Case(cls(50, 50, preserve_aspect_ratio=True), (big,), ("HWC",), atol=0.02, reason=single, note="fit")
        yield Case(cls(3, 2), (noise(1, 1),), ("HWC",), atol=0.02, reason=single, note="1x1")
        yield Case(cls(61, 83), (big,), ("HWC",), note="same")


def _floats(d: Any, size: Any) -> Any:
    """Sizes as DALI's resize takes them, which takes no integers."""
    return d.fn.cast(size, dtype=d.dtype(np.float32))


@dataclass(frozen=True, slots=True)
class ResizeArea(Resampling):
    """Resize by averaging over areas. Runs on the host under every executor: DALI has no box filter."""

    domain: ClassVar[Any] = "host"

    method: str = "area"

    @property
    def name(self) -> str:
        return "resize"  # the function that users call

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x, size in ((noise(61, 83), (24, 31)), (noise(6, 9, 1), (12, 4)), (noise(8, 8), (4, 4))):
            yield Case(cls(*size), (x,), ("HWC",), note="area-" + "x".join(map(str, size)))


def resize(
    image: T,
    size: Any,
    method: str = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
) -> T:
    """Resize `image` as `tf.image.resize` does.

    Args:
        image: values of any range, or a `Sample`.
        size: (height, width) in pixels; numbers or traced host values.
        method: "bilinear", "bicubic" (Keys, a = -0.5), "lanczos3", "nearest" or "area". "area" runs on the host.
        preserve_aspect_ratio: fit the image into `size` without distorting it.
        antialias: average over all source pixels when shrinking. False as in TensorFlow; the ops named after
            torchvision's (`random_resized_crop`, `resize_shorter`) default to True.

    Shapes: ``T[H,W,C]{HWC} -> float32[h,w,C]{HWC}``; "nearest" keeps the dtype.

    Raises:
        SpecError: `image` is not an image, the method is unknown, or a size is below 1.

    Example:
        >>> resize(np.uint8([[[0], [1]]]), (1, 4)).ravel()
        array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    """
    if is_integer(size := plain(size)) or is_traced_number(size):
        raise PlanTypeError(
            f"resize needs size as (height, width), got {size!r}; ({size!r}, {size!r}) for both, or "
            f"resize_shorter(image, {size!r}) for the shorter side, as in torchvision"
        )
    height, width = pair("resize", "size", size)
    if height is None or width is None:
        raise PlanTypeError(f"resize needs size as (height, width), got {size!r}; resize_shorter keeps the ratio")
    kind = ResizeArea if method == "area" else Resize
    op = kind(height, width, method, preserve_aspect_ratio, antialias)
    made: Any = moved(op, image, for_masks=nearest_of) if isinstance(image, Sample) else apply(op, image)
    return made  # type: ignore[no-any-return]


def nearest_of(op: Any, mask: Any) -> Resize:
    """The op for the masks of a Sample."""
    return Resize(op.height, op.width, "nearest", op.preserve_aspect_ratio)
