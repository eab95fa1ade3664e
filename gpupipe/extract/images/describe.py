"""describe: what an encoded image is, in the words in which people name the classes of images.

Nothing is decoded; what a JPEG's frame header says beyond its size is read here.
"""

from __future__ import annotations

from gpupipe.errors import DecodeError
from gpupipe.extract.images.headers import ImageHeader, read_header
from gpupipe.extract.images.jpeg import FRAMES, jpeg_segments

from ...classes import dataclass

__all__ = ["Description", "describe"]

Encoded = bytes | bytearray | memoryview


_PROCESSES = ("baseline", "extended", "progressive", "lossless")  # by the low two bits of the frame's marker


_SUBSAMPLINGS = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (4, 1): "4:1:1", (1, 2): "4:4:0", (4, 2): "4:1:0"}
"""By how many pixels share one sample of chroma: across, down."""


_RESTART, _JFIF, _ADOBE = 0xDD, 0xE0, 0xEE


@dataclass(frozen=True, slots=True)
class Description:
    """An encoded image in words.

    Attributes:
        header: its size, channels, orientation and bits.
        colour: "gray", "RGB", "YCbCr", "CMYK", "YCCK", "gray and alpha" or "RGBA".
        process: of a JPEG "baseline", "extended", "progressive" or "lossless", with "arithmetic" before it where it is
            not Huffman-coded; of a PNG "interlaced" or "".
        subsampling: of a JPEG with several channels, such as "4:2:0"; else "".
        restart_interval: of a JPEG, blocks (MCUs) from one restart marker to the next; 0 without them.
    """

    header: ImageHeader
    colour: str
    process: str = ""
    subsampling: str = ""
    restart_interval: int = 0

    @property
    def kind(self) -> str:
        """Format, process, subsampling and colour in one line, such as "JPEG baseline 4:2:0"."""
        usual = "YCbCr" if self.header.format == "jpeg" else "RGB"
        bits = "" if self.header.bits == 8 else f"{self.header.bits} bits"
        parts = (self.process, self.subsampling, "" if self.colour == usual else self.colour, bits)
        name = {"webp": "WebP"}.get(self.header.format, self.header.format.upper())
        return " ".join([name, *filter(None, parts)])


def describe(data: Encoded) -> Description:
    """Describe an image of any known format; EXIF's orientation is read.

    Raises:
        DecodeError: not an image of a known format, or one truncated inside its header.
    """
    header = read_header(data, orientation=True)
    if header.format == "jpeg":
        return _jpeg(data, header)
    colour = {1: "gray", 2: "gray and alpha", 3: "RGB"}.get(header.channels, "RGBA")
    if header.format == "tiff" and header.channels == 4:
        colour = "4 channels"  # RGBA or CMYK
    return Description(header, colour, "interlaced" * (header.format == "png" and header.progressive))


def _jpeg(data: Encoded, header: ImageHeader) -> Description:
    segments = jpeg_segments(data)
    frames = ((marker, bytes(data[start:end])) for marker, start, end in segments if marker in FRAMES)
    marker, frame = next(frames, (0, b""))
    components = [(frame[at], frame[at + 1] >> 4, frame[at + 1] & 15) for at in range(6, len(frame) - 2, 3)]
    components = components[: header.channels]
    if len(components) < header.channels:
        raise DecodeError(f"the image is truncated inside its header: {len(data)} bytes of a JPEG")
    interval = next((bytes(data[start:end]) for kind, start, end in segments if kind == _RESTART), b"")
    return Description(
        header,
        _colour([name for name, _, _ in components], _transform(data)),
        "arithmetic " * (marker > 0xC8) + _PROCESSES[marker & 3],
        _subsampling([(across, down) for _, across, down in components]),
        int.from_bytes(interval[:2], "big"),
    )


def _transform(data: Encoded) -> int | None:
    """The colour transform that a JPEG names: 0 none, 1 YCbCr (JFIF means it), 2 YCCK; None if it names none."""
    found = None
    for marker, start, end in jpeg_segments(data):
        head = bytes(data[start : min(end, start + 12)])
        if marker == _JFIF and head.startswith(b"JFIF\0"):
            return 1
        if marker == _ADOBE and head.startswith(b"Adobe") and len(head) == 12:
            found = head[11]
    return found


def _colour(names: list[int], transform: int | None) -> str:
    """The colour space by libjpeg's rules: JFIF, then Adobe's segment, then the names of the components."""
    if len(names) == 1:
        return "gray"
    if len(names) == 3:
        return "RGB" if transform == 0 or (transform is None and bytes(names) == b"RGB") else "YCbCr"
    if len(names) == 4:
        return "YCCK" if transform == 2 else "CMYK"
    return f"{len(names)} channels"


def _subsampling(factors: list[tuple[int, int]]) -> str:
    if len(factors) < 2:
        return ""
    (across, down), *others = factors[:3]
    first = others[0]
    if any(other != first for other in others) or 0 in first or across % first[0] or down % first[1]:
        return " ".join(f"{h}x{v}" for h, v in factors)
    ratio = across // first[0], down // first[1]
    return _SUBSAMPLINGS.get(ratio, " ".join(f"{h}x{v}" for h, v in factors))
