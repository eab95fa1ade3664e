"""convert_image_dtype: convert an image to another dtype and its range: 0..255, 0..65535 or 0..1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import Symbol, apply
from gpupipe.ops.cast import saturated, saturated_dali
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec, as_leaf, spec_of

__all__ = ["ConvertImageDtype", "convert_image_dtype"]

T = TypeVar("T")

LARGEST = {"uint8": 255, "uint16": 65535, "float16": 1, "float32": 1}


@dataclass(frozen=True, slots=True)
class ConvertImageDtype(Op):
    """Convert to `dtype` and scale from the range of `source` to the range of `dtype`, as `tf.image` does.

    Integers to floats: ``x * (1 / 255)`` in float32. Floats to integers: ``x * 255.5`` toward zero; values that
    do not fit always saturate (TensorFlow wraps unless asked not to). uint16 to uint8: ``x // 256``; uint8 to uint16:
    ``x * 256``. Exact on every executor.

    Attributes:
        source: dtype of the input; a DALI node does not know its own.
        dtype: of the result.

    Shapes: ``source[H,W,C] -> dtype[H,W,C]``, the layout stays.
    """

    still: ClassVar[bool] = True
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "rows"

    source: str = "uint8"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("source", "dtype"):
            object.__setattr__(self, name, checked_dtype("convert_image_dtype", getattr(self, name)))

    @property
    def ignores_layout(self) -> bool:
        return True

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        x = x if x.layout == "CHW" else x.require("convert_image_dtype", layout="HWC")
        x.require("convert_image_dtype", dtype=self.source)
        return TensorSpec(x.shape, self.dtype, x.layout)

    def reference(self, x: Array) -> Array:
        dtype = np.dtype(self.dtype)
        if x.dtype == dtype:
            return x
        if self._integers:
            scaled = x // 256 if dtype.itemsize == 1 else x.astype(dtype) * dtype.type(256)
            return scaled.astype(dtype)
        result: Array = saturated(x.astype(np.float32) * np.float32(self._scale), dtype)
        return result

    def stacked(self, x: Array) -> Array:
        return self.reference(x)

    def dali(self, d: Any, x: Any) -> Any:
        if self.source == self.dtype:
            return x
        if self._integers:
            return d.fn.cast(x // 256 if self.dtype == "uint8" else x * 256, dtype=d.dtype(self.dtype))
        scaled = d.fn.cast(x, dtype=d.dtype(np.float32)) * self._scale
        return saturated_dali(d, scaled, np.dtype(self.dtype))

    @property
    def _integers(self) -> bool:
        return self.source.startswith("uint") and self.dtype.startswith("uint")

    @property
    def _scale(self) -> float:
        if self.dtype.startswith("uint"):
            return LARGEST[self.dtype] + 0.5
        return 1 / LARGEST[self.source]

    def is_identity(self, x: TensorSpec) -> bool:
        return self.source == self.dtype

    @classmethod
    def cases(cls) -> Iterator[Case]:
        u8 = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
        u16 = np.linspace(0, 65535, 96).astype(np.uint16).reshape(8, 4, 3)
        f = np.linspace(-0.3, 1.3, 300, dtype=np.float32).reshape(10, 10, 3)
        for x in (u8, u16, f, f.astype(np.float16)):
            for dtype in LARGEST:
                yield Case(cls(str(x.dtype), dtype), (x,), ("HWC",), note=dtype)
        yield Case(cls("uint8", "float32"), (u8.reshape(1, 16, 16),), ("CHW",), note="chw")


def checked_dtype(who: str, dtype: Any) -> str:
    """The name of an image's dtype.

    Raises:
        SpecError: the dtype has no agreed range for images.
    """
    try:
        name: str = np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in LARGEST:
        shown = name or repr(dtype)
        raise SpecError(f"{who} needs images of {', '.join(LARGEST)}, got {shown}; convert it with ops.cast")
    return name


def dtype_of(who: str, image: Any) -> str:
    """The name of the dtype of an image, traced or not.

    Raises:
        SpecError: the image is bytes, or its dtype is unknown or has no agreed range.
    """
    image = image.image if isinstance(image, Sample) else image
    spec = image._value.spec if isinstance(image, Symbol) else spec_of(as_leaf(image))
    if spec.dtype is None:
        raise SpecError(f"{who} needs an image of a known dtype, got {spec}; give the map before it a spec=")
    spec.require(who, layout="HWC" if spec.dtype is bytes else None)
    return checked_dtype(who, spec.dtype)


def convert_image_dtype(image: T, dtype: Any) -> T:
    """Convert an image to another dtype and its range: floats are 0..1, uint8 0..255, uint16 0..65535.

    Args:
        image: of uint8, uint16, float16 or float32.
        dtype: one of them. Values that do not fit saturate.

    Shapes: ``T[H,W,C] -> dtype[H,W,C]``

    Raises:
        SpecError: `image` or `dtype` is of another dtype.

    Example:
        >>> convert_image_dtype(np.full((1, 1, 1), 0.5, np.float32), "uint8")
        array([[[127]]], dtype=uint8)
    """
    op = ConvertImageDtype(dtype_of("convert_image_dtype", image), dtype)
    return apply(op, image)  # type: ignore[no-any-return]
