"""kinds: what a file is, by its first bytes or its name."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from gpupipe.errors import DataError
from gpupipe.extract.records.compression import Compression
from gpupipe.extract.records.crc import header_at, masked_crc32c
from gpupipe.extract.records.framing import HEADER, sniff
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.storage.remote import storage_of

__all__ = [
    "IMAGE_SUFFIXES",
    "Kind",
    "first_bytes",
    "is_image_name",
    "kind_at",
    "kind_of",
    "size_of",
    "starts_with_record",
    "what_is",
]

_HEAD = 4096  # bytes that tell a file's kind; a compressed record header is within them


_WINDOWS: dict[Compression, tuple[int, tuple[bytes, ...]]] = {
    "GZIP": (31, (b"\x1f\x8b\x08",)),
    "ZLIB": (15, (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")),
}


IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""Of the names of image files, of the formats that `ops.decode_image` reads."""


_TAR = b"ustar"  # in the header of a member; the first one stands at the start
_IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"II*\0", b"MM\0*")


class Kind(NamedTuple):
    """What a file is.

    Attributes:
        name: "TFRecord", also of an empty file and of bytes that nothing is known of; else "a JPEG image", "an image",
            "a zip archive" and the like.
        compression: of a TFRecord file.
    """

    name: str
    compression: Compression = ""

    @property
    def is_image(self) -> bool:
        """Whether it is an image of a format that gpupipe knows, damaged or not."""
        return self.name.endswith("image")


def is_image_name(name: str) -> bool:
    """Whether a file name is that of an image that can be decoded."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def starts_with_record(path: str) -> bool:
    """Whether a file starts like a TFRecord file, compressed or not; one that cannot be read does not."""
    try:
        head = first_bytes(path)
    except DataError:
        return False
    return _is_header(head) or any(_is_header(_inflated(head, compression)) for compression in _WINDOWS)


def first_bytes(path: str, n: int = _HEAD) -> bytes:
    """Read the first `n` bytes of a file, or those that it has.

    Raises:
        DataError: it is missing, or cannot be read.
    """
    file = OpenFile(storage_of(path), path)
    return file.read(0, min(n, file.size)) if file.size else b""


def kind_at(path: str) -> Kind:
    """Tell what a file is.

    Bytes that nothing is known of, none, and those of a file that cannot be read are an image if the file has the name
    of one, else records: who reads them says what is wrong.
    """
    try:
        head = first_bytes(path)
    except DataError:
        return Kind("an image" if is_image_name(path) else "TFRecord")
    kind = kind_of(head)
    unknown = kind == Kind("TFRecord") and not _is_header(head)
    return Kind("an image") if unknown and is_image_name(path) else kind


def what_is(path: str) -> str:
    """Say what a file is that was taken for something else: "an empty file", "a TFRecord file", "a text file"."""
    head = first_bytes(path)
    kind = kind_of(head)
    if not head:
        return "an empty file"
    if head[257:262] == _TAR:
        return "a tar archive that is damaged at its start"
    if kind.name != "TFRecord" or kind.compression or _is_header(head):
        return kind.name if kind.is_image or kind.name != "TFRecord" else "a TFRecord file"
    text = head.decode("utf-8", "replace")[:-3]
    return "a text file" if all(c.isprintable() or c in "\n\r\t" for c in text) else "a file of another kind"


def size_of(path: str) -> int:
    """Return the bytes of a file, 0 if they cannot be told."""
    try:
        return storage_of(path).size(path)[0]
    except DataError:
        return 0


def kind_of(head: bytes) -> Kind:
    """Tell what a file is from its first bytes."""
    if _is_header(head):
        return Kind("TFRecord")
    for compression, (_, magics) in _WINDOWS.items():
        if head.startswith(magics) and (compression == "GZIP" or _inflated(head, compression)):
            return Kind("TFRecord", compression)
    webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    bmp = head[:2] == b"BM" and head[6:10] == bytes(4)
    if head.startswith(_IMAGES) or webp or bmp:
        return Kind(sniff(head) or "an image")
    if head[257:262] == _TAR:
        return Kind("a tar archive")
    found = sniff(head)
    compressed = found is not None and "compression_type" in found  # damaged at its start: its reader says so
    return Kind("TFRecord" if found is None or compressed else found)


def _inflated(head: bytes, compression: Compression) -> bytes:
    """Decompress what the first bytes of a file hold; b"" if they are not compressed in this way."""
    try:
        return zlib.decompressobj(_WINDOWS[compression][0]).decompress(head, HEADER)
    except zlib.error:
        return b""


def _is_header(head: bytes) -> bool:
    """Whether bytes start with the header of a record."""
    return len(head) >= HEADER and masked_crc32c(head[:8]) == header_at(head)[1]
