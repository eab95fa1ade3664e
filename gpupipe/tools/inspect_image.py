"""inspect_image: what an image file is, and whether it can be decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpupipe.comparison.steps.classes import taken_by_dali
from gpupipe.errors import DataError, DecodeError, io_reason, shown_name
from gpupipe.extract.images.decode import damage_of, decode
from gpupipe.extract.images.describe import Description, describe
from gpupipe.extract.images.headers import check_complete, check_decodable
from gpupipe.extract.kinds import first_bytes, size_of
from gpupipe.tools.text import byte_count, counted
from gpupipe.urls import without_secrets

from ..classes import dataclass

__all__ = ["REFUSED", "ImageFile", "image_file"]

_ORIENTATIONS = (
    "upright",
    "mirrored left-right",
    "rotated by 180 degrees",
    "mirrored upside down",
    "mirrored along the main diagonal",
    "to be rotated by 90 degrees clockwise",
    "mirrored along the other diagonal",
    "to be rotated by 90 degrees counterclockwise",
)
"""What EXIF's 1..8 say of the stored pixels."""


MOST = 1 << 30
"""Bytes of a file that is read as an image."""


REFUSED = "Options(strict_images=True) makes such an image a bad element"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image file.

    Attributes:
        path: of the file.
        size: of the file, in bytes.
        data: its bytes, if they are kept; else none.
        described: what its header says; None if it cannot be read.
        ordinary: whether DALI decodes it; if not, the host does.
        failure: why it is a bad record in a chain; "" if it is good.
        damage: what libjpeg warns of in its data, which it decodes all the same; "" if nothing.
    """

    path: str
    size: int
    data: bytes
    described: Description | None
    ordinary: bool
    failure: str
    damage: str = ""

    def json(self) -> dict[str, Any]:
        """Make the entry of `gpupipe inspect --json`."""
        out: dict[str, Any] = {"path": without_secrets(self.path), "bytes": self.size, "error": self.failure or None}
        out |= {"damage": self.damage} if self.damage else {}
        if self.described is None:
            return out
        one, header = self.described, self.described.header
        return {
            **out,
            "format": header.format,
            "height": header.height,
            "width": header.width,
            "channels": header.channels,
            "bits": header.bits,
            "colour": one.colour,
            "process": one.process or None,
            "subsampling": one.subsampling or None,
            "orientation": header.orientation,
            "restart_interval": one.restart_interval,
            "decoded_by_dali": self.ordinary,
        }

    def text(self) -> str:
        """Lay it out for people."""
        name = f"{shown_name(self.path)}: "
        if self.described is None:
            return f"{name}{self.failure}"
        one, header = self.described, self.described.header
        turned = _ORIENTATIONS[header.orientation - 1]
        lines = [
            f"{name}{one.kind}, {byte_count(self.size)}",
            f"  size         {header.height} x {header.width} pixels (height x width), as stored",
            f"  colour       {one.colour}, {header.bits} bits in {counted(header.channels, 'channel')}",
        ]
        if one.subsampling:
            lines.append(f"  subsampling  {one.subsampling}")
        if header.format == "jpeg":
            every = f"every {one.restart_interval} blocks (MCUs)" if one.restart_interval else "none"
            lines.append(f"  restarts     {every}")
        lines.append(f"  orientation  {header.orientation}, {turned}")
        where = "by DALI" if self.ordinary else "on the host by every executor: not an ordinary JPEG or PNG"
        lines.append(f"  decoding     {self.failure or f'succeeds; {where}'}")
        if self.damage:
            lines.append(f"  damage       {self.damage}; {REFUSED}")
        return "\n".join(lines)


def image_file(
    path: str, decoded: bool = True, keep: bool = True, read: Callable[[], bytes] | None = None
) -> ImageFile:
    """Read an image file, check its header and its end, and decode it. One that cannot be read is a bad image.

    Args:
        path: of the file; of an image in an archive its place.
        decoded: whether it is decoded.
        keep: whether its bytes are kept.
        read: gives the bytes; None reads the file.
    """
    size = 0
    try:
        size = size_of(path) if read is None else 0
        if size > MOST:
            raise DecodeError(f"an image of at most {MOST} bytes is read, this file has {size}")
        data = first_bytes(path, size) if read is None else read()
        size = len(data)
    except DataError as error:
        return ImageFile(path, size, b"", None, False, error.reason)
    except OSError as error:
        return ImageFile(path, size, b"", None, False, io_reason(error))
    described, failure, ordinary, damage = None, "" if data else "the file is empty", False, ""
    try:
        if data:
            described = describe(data)
            if decoded:
                decode(data)
                damage = damage_of(data)
            else:
                check_complete(data, described.header)
                check_decodable(described.header.format, described.header.bits)
            ordinary = taken_by_dali(data)
    except DecodeError as error:
        failure = error.reason
    return ImageFile(path, size, data if keep else b"", described, ordinary, failure, damage)
