"""png: the structure of a PNG, read without decoding it: whether it is complete, which chunks change its pixels."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from gpupipe.errors import DecodeError
from gpupipe.extract.images.exif import NORMAL, orientation_of

__all__ = ["check_png", "exif_and_xmp", "has_all_rows", "is_ordinary", "png_chunks", "without_ancillary"]

Encoded = bytes | bytearray | memoryview

_chunk = struct.Struct(">I4s").unpack_from


_CRITICAL = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))


_FRAMES = frozenset((b"acTL",))


_GAMMA = frozenset((b"gAMA", b"sRGB", b"cHRM", b"iCCP"))


_EXIF = frozenset((b"eXIf",))


_TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt"))


_PROFILE, _PACKET = b"Raw profile type exif", b"XML:com.adobe.xmp"
"""Keys of texts with an EXIF block, and with an XMP packet."""


_KEY = 80  # bytes of the longest key, and its end


_MOST_TEXT = 1 << 20  # bytes of a text that was compressed, as in Pillow


_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type


_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row and column of each pass of an interlaced PNG, and its steps."""


_MOST_CHUNKS = 100_000  # a file of nothing else must not occupy a thread


_MOST_DEFLATED = 1032  # a byte of deflate expands to 1032 bytes at most


def png_chunks(data: Encoded) -> Iterator[tuple[bytes, int, int]]:
    """Iterate over (type, start, end) of the chunks of a PNG.

    Raises:
        DecodeError: the PNG is truncated, or has too many chunks.
    """
    at, n = 8, len(data)
    for _ in range(_MOST_CHUNKS):
        length, kind = _chunk(data, at) if at + 12 <= n else (0, b"")
        if not kind or length > n - at - 12:
            raise DecodeError(f"truncated PNG: {n} bytes without IEND, the chunk {kind!r} at byte {at} is incomplete")
        yield kind, at + 8, at + 8 + length
        if kind == b"IEND":
            return
        at += 12 + length
    raise DecodeError(f"damaged PNG: no IEND within its first {_MOST_CHUNKS} chunks")


def check_png(data: Encoded) -> None:
    """Check that a PNG whose header was read is complete. Damage of a chunk that no pixel needs is allowed.

    Raises:
        DecodeError: it is truncated or damaged, or has fewer bytes than its pixels need.
    """
    pixels, palette = 0, False
    with memoryview(data) as view:
        for kind, start, end in png_chunks(view):
            if not kind.isalpha() or (kind[0] < 0x60 and kind not in _CRITICAL):
                raise DecodeError(f"damaged PNG: an unknown chunk {kind!r} at byte {start - 8}")
            if kind in _CRITICAL and zlib.crc32(view[start - 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
                raise DecodeError(f"damaged PNG: the checksum of its {kind.decode()} at byte {start - 8} is wrong")
            pixels += end - start if kind == b"IDAT" else 0
            palette |= kind == b"PLTE" and not pixels
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    if colour == 3 and not palette:
        raise DecodeError("damaged PNG: its pixels are indices of a palette, and it has no PLTE before them")
    if not pixels or height * (width * bits * _CHANNELS[colour] // 8) > pixels * _MOST_DEFLATED:
        raise DecodeError(f"damaged PNG: {pixels} bytes of pixels cannot be those of {width}x{height}")


def exif_and_xmp(data: Encoded) -> tuple[bytes, bytes]:
    """The EXIF block of a PNG and its XMP packet, each empty if it has none, where Pillow finds them.

    The block is a chunk of its own, or hexadecimal digits in a text, as ImageMagick writes it. Of several texts with
    one key the last one counts, and no other is decompressed.
    """
    block, last = None, dict[bytes, tuple[bytes, int, int]]()
    for kind, start, end in png_chunks(data):
        if kind == b"eXIf" and block is None:
            block = bytes(data[start:end])
        elif kind in _TEXTS and (key := bytes(data[start : start + _KEY]).partition(b"\0")[0]) in (_PROFILE, _PACKET):
            last[key] = kind, start + len(key) + 1, end

    def text(key: bytes) -> bytes:
        kind, start, end = last.get(key, (b"", 0, 0))
        return _text(kind, bytes(data[start:end]))

    if block is None:
        try:
            block = bytes.fromhex(b"".join(text(_PROFILE).split(b"\n")[3:]).decode("ascii"))
        except ValueError:  # not digits
            block = b""
    for _ in range(2):
        block = block.removeprefix(b"Exif\0\0")
    return block, text(_PACKET)


def _text(kind: bytes, rest: bytes) -> bytes:
    """The text of a chunk behind its key; empty if it is damaged."""
    packed = kind == b"zTXt"
    if packed:
        rest = rest[1:]  # the method, of which there is one
    elif kind == b"iTXt":
        packed = rest[:1] != b"\0"
        rest = rest[2:].split(b"\0", 2)[-1]  # language, translated key
    try:
        return zlib.decompressobj().decompress(rest, _MOST_TEXT) if packed else rest
    except zlib.error:
        return b""


def is_ordinary(data: Encoded, gray: bool, turned: bool) -> bool:
    """Whether all decoders give the same pixels for a PNG that passed its check.

    They do if it has up to 8 bits (some round 16 bits to 8) and is not animated. It must have no gamma if gray is made
    from its colours, which some decoders do in linear light, and no EXIF block if its orientation is applied: some
    readers crash on a damaged one, and none but Pillow looks for an orientation elsewhere.

    Args:
        data: the encoded image.
        gray: whether it is decoded to gray.
        turned: whether it is rotated as its EXIF block says.
    """
    if data[24] == 16:
        return False
    odd = _FRAMES | (_GAMMA if gray and data[25] & 2 else frozenset()) | (_EXIF if turned else frozenset())
    if any(kind in odd for kind, _, _ in png_chunks(data)):
        return False
    return not turned or orientation_of(*exif_and_xmp(data)) == NORMAL


def without_ancillary(data: Encoded) -> bytes:
    """Copy a PNG that passed its check with only the chunks that its pixels need, without any damage of the others."""
    chosen = [data[start - 8 : end + 4] for kind, start, end in png_chunks(data) if kind in _CRITICAL]
    return b"".join([data[:8], *chosen])


def has_all_rows(data: Encoded) -> bool:
    """Whether a PNG that passed its check has all its pixels: Pillow decodes missing rows as black."""
    width, height, bits, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(height - y) // down), -(-(width - x) // right)) for y, x, down, right in passes]
    depth = bits * _CHANNELS[colour]
    needed: int = sum(rows * (1 + (columns * depth + 7) // 8) for rows, columns in sizes if rows > 0 and columns > 0)
    stream = b"".join(data[start:end] for kind, start, end in png_chunks(data) if kind == b"IDAT")
    try:  # data after the last row is ignored
        return len(zlib.decompressobj().decompress(stream, needed)) == needed
    except zlib.error:
        return False
