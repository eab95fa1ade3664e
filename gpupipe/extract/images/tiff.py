"""tiff: the TIFFs that Pillow does not read, or reads in part: more than four channels, several of 16 bits, floats.

tifffile decodes them. Only the first page of a file counts, as for Pillow.
"""

from __future__ import annotations

import io
import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.errors import DecodeError, MissingDependencyError, shown_cause
from gpupipe.extract.images.exif import NORMAL
from gpupipe.missing import LIBRARIES

from ...classes import dataclass

__all__ = ["TiffLayout", "check_samples", "layout_of", "read_tiff"]

Array = npt.NDArray[Any]
Encoded = bytes | bytearray | memoryview

_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION = 256, 257, 258, 262, 274
_CHANNELS, _PLANAR, _EXTRA, _FORMAT = 277, 284, 338, 339

_KINDS = {1: "uint", 2: "int", 3: "float"}  # by SampleFormat

_SUPPORTED = {"uint8", "uint16", "float32"}

_DEFLATE = (8, 32946)

_BY_IMAGECODECS = (5, 50000)
"""LZW and Zstandard, whose decoders in imagecodecs stop at the size that they are given."""

_PALETTE, _LINEAR = 3, (1, 2)  # PhotometricInterpretation: a palette; black is zero, RGB


@dataclass(frozen=True, slots=True)
class TiffLayout:
    """What the tags of a TIFF say about its samples.

    Attributes:
        height: in pixels, as stored.
        width: in pixels, as stored.
        channels: samples of a pixel.
        kind: of a sample: "uint", "int" or "float".
        bits: of a sample; 0 where the samples of a pixel differ.
        planar: whether each channel is stored on its own.
        alpha: whether the last channel is transparency.
        multiplied: whether the colours are stored as products with it.
        photometric: how samples are to be seen: 1 gray, 2 RGB, 3 a palette, ...
        orientation: EXIF's 1..8.
    """

    height: int
    width: int
    channels: int
    kind: str
    bits: int
    planar: bool
    alpha: bool
    multiplied: bool
    photometric: int
    orientation: int

    @property
    def is_beyond_pillow(self) -> bool:
        """Whether Pillow fails on such a file or drops a part of it."""
        if self.photometric == _PALETTE or not self.bits:
            return False
        if self.channels in (1, 3, 4):
            apart = self.planar and (self.is_deep or self.multiplied)
            return self.channels > 1 and (self.dtype not in ("uint8", "uint16") or apart)
        return self.is_deep or self.channels > 4 or (self.channels == 2 and not self.alpha)

    @property
    def dtype(self) -> str:
        """The name of a sample's dtype, such as "uint16"."""
        return f"{self.kind}{self.bits}"

    @property
    def pixel_bytes(self) -> int:
        """Bytes of all samples of a pixel, in the widest form that they take while they are decoded."""
        return self.channels * (8 if self.multiplied else self.bits // 8)

    @property
    def is_deep(self) -> bool:
        """Whether a sample has more than 8 bits."""
        return self.bits > 8


def layout_of(data: Encoded) -> TiffLayout | None:
    """Read the tags of a TIFF; None if they are damaged, which Pillow then describes."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    stream = io.BytesIO(data)
    try:
        tags: Any = ImageFileDirectory_v2(stream.read(8))
        stream.seek(tags.next)
        tags.load(stream)
        kinds, depths = set(tags.get(_FORMAT, (1,))), set(tags.get(_BITS, (1,)))
        channels, extra = int(tags.get(_CHANNELS, 1)), tags.get(_EXTRA, ())
        height, width, turned = int(tags[_HEIGHT]), int(tags[_WIDTH]), tags.get(_ORIENTATION, NORMAL)
        if min(height, width, channels) < 1:
            return None
        return TiffLayout(
            height,
            width,
            channels,
            _KINDS[min(kinds)],
            int(min(depths)) if len(kinds) == len(depths) == 1 else 0,
            tags.get(_PLANAR, 1) == 2,
            any(meaning in (1, 2) for meaning in extra),
            len(extra) == 1 and extra[0] == 1,
            int(tags.get(_PHOTOMETRIC, 1)),
            turned if turned in range(1, 9) else NORMAL,
        )
    except Exception:  # Pillow's readers raise all kinds of exceptions on damaged bytes
        return None


def check_samples(layout: TiffLayout) -> None:
    """Refuse gray TIFFs that Pillow reads as if they had other samples: 12 bits as 16, and signed bytes as unsigned.

    Raises:
        DecodeError: it is one of them.
    """
    if layout.channels != 1 or layout.photometric not in (0, 1) or layout.bits in (0, 32):
        return
    if layout.kind == "int" or layout.bits not in (1, 2, 4, 8, 16):
        raise DecodeError(
            f"a gray TIFF of 1, 2, 4, 8 or 16 bits without sign, or of float32, is needed, got {layout.dtype}; "
            "read it in an ops.py_function, with tifffile for example"
        )


def read_tiff(data: Encoded, layout: TiffLayout, most_samples: int) -> Array:
    """Decode the first page of a TIFF with tifffile, as stored: the orientation is not applied.

    Args:
        data: the file.
        layout: what its tags say.
        most_samples: how many samples it may have.

    Returns:
        uint8, uint16 or float32[H,W,C].

    Raises:
        DecodeError: it is damaged or truncated, has other samples or too many of them, or is compressed in a way that
            cannot be bounded.
        MissingDependencyError: tifffile, or imagecodecs for such a compression, is not installed.
    """
    shape = (layout.height, layout.width, layout.channels)
    if layout.dtype not in _SUPPORTED or not (layout.photometric in _LINEAR or layout.channels > 4):
        raise DecodeError(
            f"a TIFF of {', '.join(sorted(_SUPPORTED))} is needed, gray, RGB or of many channels, got "
            f"{layout.channels} of {layout.dtype} (PhotometricInterpretation {layout.photometric}); "
            f"read it in an ops.py_function"
        )
    if layout.height * layout.width * layout.channels > most_samples:
        raise DecodeError(
            f"a TIFF may have {most_samples} samples, 4 for each of Options.max_pixels, got {'x'.join(map(str, shape))}"
        )
    try:
        from tifffile import TiffFile
    except ImportError as error:
        raise MissingDependencyError(
            f"a TIFF of {layout.channels} channels of {layout.dtype} needs tifffile, which is not installed; "
            f"install it with: pip install {LIBRARIES['tiff']}"
        ) from error
    try:
        with TiffFile(io.BytesIO(data)) as file:
            page: Any = file.pages[0]
            _check(page, layout, memoryview(data))
            image = page.asarray(squeeze=False, maxworkers=1)  # [S,1,H,W,C], with S or C of 1
            image = np.ascontiguousarray(np.moveaxis(image[:, 0], 0, 2).reshape(shape))
            return _divided(image) if layout.multiplied else image
    except (DecodeError, MemoryError):
        raise
    except Exception as error:  # its readers raise all kinds of exceptions on damaged bytes
        if "imagecodecs" in str(error):
            raise MissingDependencyError(
                f"this TIFF needs imagecodecs for its compression or predictor, which is not installed; "
                f"install it with: pip install imagecodecs ({error})"
            ) from error
        raise DecodeError(f"damaged TIFF: {error}") from shown_cause(error)


def _divided(image: Array) -> Array:
    """Colours that were stored as products with the alpha of the last channel, divided by it, as Pillow does."""
    colours, alpha = image[:, :, :-1], image[:, :, -1:]
    most = np.iinfo(image.dtype).max if image.dtype.kind == "u" else 1
    wide = colours.astype(np.float64 if image.dtype.kind == "f" else np.uint64) * most
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = wide / alpha if image.dtype.kind == "f" else wide // np.maximum(alpha, 1)
    plain = np.where(alpha == 0, 0, np.minimum(plain, most))
    return np.concatenate([plain.astype(image.dtype), alpha], axis=2)


def _check(page: Any, layout: TiffLayout, data: memoryview) -> None:
    """Check that a page is what its tags say, and that its parts lie apart in the file and do not expand beyond it.

    Raises:
        DecodeError: it is not.
    """
    stated = (page.imagelength, page.imagewidth, page.samplesperpixel, page.dtype, page.imagedepth)
    if stated != (layout.height, layout.width, layout.channels, np.dtype(layout.dtype), 1):
        raise DecodeError(f"damaged TIFF: its tags contradict each other: {stated}")
    parts = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    if not parts or any(count < 1 or start < 8 or start + count > len(data) for start, count in parts):
        raise DecodeError(f"truncated TIFF: not all of its {len(parts)} strips or tiles lie in its {len(data)} bytes")
    if any(start + count > other for (start, count), (other, _) in pairwise(sorted(parts))):
        raise DecodeError("damaged TIFF: its strips or tiles overlap")
    if page.compression not in (1, *_DEFLATE, *_BY_IMAGECODECS):  # others may expand to any size
        raise DecodeError(f"a TIFF of LZW, deflate, Zstandard or no compression is needed, got {page.compression!r}")
    if page.compression in _BY_IMAGECODECS:
        import imagecodecs  # noqa: F401 : where it is missing, this says so before a strip is decoded
    channels = 1 if layout.planar else layout.channels
    height, width = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, layout.width)
    if page.is_tiled and (page.tiledepth != 1 or height > 2 * layout.height + 256 or width > 2 * layout.width + 256):
        raise DecodeError(f"damaged TIFF: tiles of {height}x{width} for {layout.height}x{layout.width} pixels")
    rows = height if page.is_tiled else min(height, layout.height)
    most = rows * width * channels * page.dtype.itemsize
    for start, count in parts if page.compression in _DEFLATE else ():
        inflater = zlib.decompressobj()
        inflater.decompress(data[start : start + count], most)
        if inflater.unconsumed_tail:
            raise DecodeError(f"damaged TIFF: a part of it expands to more than its {most} bytes")
