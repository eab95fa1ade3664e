"""extract_jpeg_shape: read the size of an encoded image from its header."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.extract.images.headers import read_header
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.decoding import files
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.spec import TensorSpec

__all__ = ["ExtractJpegShape", "extract_jpeg_shape"]


@dataclass(frozen=True, slots=True)
class ExtractJpegShape(Op):
    """Read height, width and channels from a header, without decoding. Runs on the host under every executor.

    Attributes:
        exif_orientation: return the size of the upright image.

    Shapes: ``bytes -> int32[3]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    exif_orientation: bool = False

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        if xs[0].dtype is not bytes or xs[0].shape != ():
            raise SpecError(f"extract_jpeg_shape needs the bytes of an encoded image, got {xs[0]}")
        return TensorSpec((3,), np.int32)

    def reference(self, data: Any) -> Array:
        header = read_header(data, orientation=self.exif_orientation)
        return np.array((*header.size, header.channels), np.int32)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for name, file in files():
            yield Case(cls(), (file,), (None,), note=name)
        yield Case(cls(True), (encoded(picture(9, 14), orientation=6),), (None,), note="upright")


def extract_jpeg_shape(contents: Any, *, exif_orientation: bool = False) -> Any:
    """Read (height, width, channels) of an encoded image without decoding it.

    Args:
        contents: the bytes of a JPEG, or of any other known format.
        exif_orientation: return the size of the upright image.

    Shapes: ``bytes -> int32[3]``

    Raises:
        SpecError: `contents` is not bytes.
        DecodeError: at run time: the bytes have no image header.

    Example:
        >>> extract_jpeg_shape(open("photograph.jpg", "rb").read())  # doctest: +SKIP
        array([375, 500,   3], dtype=int32)
    """
    return apply(ExtractJpegShape(exif_orientation), contents)
