"""equalize: give every channel a histogram that is as even as its levels allow."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from PIL import Image

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, tolerance
from gpupipe.ops._shared.libraries import opencv
from gpupipe.ops._shared.samples import picture
from gpupipe.ops.autocontrast import flat_and_tones
from gpupipe.ops.convert_image_dtype import ConvertImageDtype, dtype_of

__all__ = ["Equalize", "equalize", "equalized", "equalized_dali"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Equalize(Colour):
    """Equalize the histogram of each channel of 8 bits by Pillow's law, as torchvision does. Exact on every executor.

    OpenCV's and DALI's own operators round another table. So in a DALI graph the host computes it, in NumPy, also
    where the graph runs on a GPU; with a probability only for the images that are changed.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""

    def reference(self, x: Array, *params: Any) -> Array:
        return self._through_bytes(x, equalized)

    def fast(self, x: Array, *params: Any) -> Array:
        cv2 = opencv()

        def counts(channel: Array) -> Array:
            histogram: Array = cv2.calcHist([channel], [0], None, [256], [0, 256]).reshape(-1)
            return histogram.astype(np.int64)  # float32 counts up to 2**24 pixels

        small = x.shape[0] * x.shape[1] < 1 << 24
        return self._through_bytes(x, lambda image: equalized(image, counts) if small else equalized(image))

    def _through_bytes(self, x: Array, function: Callable[[Array], Array]) -> Array:
        there, back = self._conversions()
        with np.errstate(all="ignore"):  # for floats that are not finite
            return back.reference(function(there.reference(x)))

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        there, back = self._conversions()
        x = there.dali(d, x)
        if d.device == "gpu":
            x = x.cpu()
        x = d.fn.python_function(x, function=equalized, output_layouts="HWC")
        return back.dali(d, x.gpu() if d.device == "gpu" else x)

    def _conversions(self) -> tuple[ConvertImageDtype, ConvertImageDtype]:
        return ConvertImageDtype(self.dtype, "uint8"), ConvertImageDtype("uint8", self.dtype)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for note, x in flat_and_tones():
            yield Case(cls(dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=note)
        yield Case(cls(), (picture(40, 50),), ("HWC",))


def _counts(channel: Array) -> Array:
    return np.array(Image.frombuffer("L", channel.shape[::-1], channel).histogram())  # a third of np.bincount's time


def equalized(x: Array, counts: Callable[[Array], Array] = _counts) -> Array:
    """Equalize each channel of uint8[H,W,C].

    A level becomes ``(pixels below it + step // 2) // step``, at most 255, with ``step`` the pixels below the highest
    level that there is, divided by 255. Where that is 0, nothing changes.
    """
    out = np.empty_like(x)
    for c in range(x.shape[2]):
        channel = np.ascontiguousarray(x[:, :, c])
        histogram = counts(channel)
        step = (channel.size - int(histogram[np.flatnonzero(histogram)[-1]])) // 255 if channel.size else 0
        if step == 0:
            out[:, :, c] = channel
            continue
        below = np.cumsum(histogram) - histogram
        table = np.minimum((below + step // 2) // step, 255).astype(np.uint8)
        # bytes are translated in two thirds of the time of `np.take`
        out[:, :, c] = np.frombuffer(channel.tobytes().translate(table.tobytes()), np.uint8).reshape(channel.shape)
    return out


def equalized_dali(d: Any, xs: Sequence[Any], flags: Sequence[Any]) -> list[Any]:
    """Equalize some images of a row of images of uint8[H,W,C], of one size, as DALI nodes.

    All of them in one call of Python, since on a GPU each call copies its images to the host and back.

    Args:
        d: what `Op.dali` gets.
        xs: nodes of the images.
        flags: nodes of the host: for each of `xs` whether it is equalized, one bool per row of the batch.
    """
    split, merge = d.fn._conditional.split, d.fn._conditional.merge
    some = reduce(operator.or_, flags)
    taken, others = zip(*(split(x, predicate=some, _if_stmt=True) for x in xs), strict=True)
    marks = [split(flag, predicate=some, _if_stmt=True)[0] for flag in flags]
    stack = d.fn.stack(*taken)
    stack = stack.cpu() if d.device == "gpu" else stack
    made = d.fn.python_function(stack, *marks, function=_equalized_some, output_layouts="NHWC")
    made = made.gpu() if d.device == "gpu" else made
    return [merge(made[n], other, predicate=some) for n, other in enumerate(others)]


def _equalized_some(xs: Array, *flags: Array) -> Array:
    """Equalize those of uint8[N,H,W,C] whose flag is set."""
    return np.stack([equalized(x) if flag else x for x, flag in zip(xs, flags, strict=True)])


def equalize(image: T) -> T:
    """Equalize the histogram of every channel of `image`, as torchvision's and Pillow's `equalize`.

    Args:
        image: of uint8, uint16, float16 or float32. It goes through 8 bits: floats are clipped to 0..1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type.

    Example:
        >>> x = np.repeat(np.array([10, 20, 30], np.uint8), 255).reshape(15, 51, 1)
        >>> np.unique(equalize(x))
        array([  0, 128, 255], dtype=uint8)
    """
    return apply(Equalize(dtype=dtype_of("equalize", image)), image)  # type: ignore[no-any-return]
