"""scans: what the scans of a JPEG tell: where one of them ends too early, and whether all of them are there.

The header of a JPEG says nothing about it, so whoever asks goes through the file, which only a progressive or damaged
one needs.
"""

from __future__ import annotations

from gpupipe.extract.images.headers import MARKER_IN_SCAN, jpeg_segments, jpeg_size

__all__ = ["first_marker_in_scan", "is_unfinished", "jpeg_read_in_several_ways"]

_MOST_SCANS = 1000
"""Scans that are looked at. Encoders make about ten."""


_SCAN, _END = 0xDA, 0xD9


_WITHOUT_LENGTH = 0x01


_COEFFICIENTS = frozenset(range(64))


def first_marker_in_scan(data: bytes | bytearray | memoryview, channels: int) -> int | None:
    """Where the first marker stands that ends the one scan of a JPEG and is not the end of the image.

    None if there is none, or if this is no JPEG of one scan of all channels.
    """
    segments = jpeg_segments(data)
    if not segments or segments[-1][0] != _SCAN:
        return None
    _, start, at = segments[-1]
    if at <= start or at > len(data) or data[start] != channels:
        return None
    scan = bytes(data[at:])
    found = MARKER_IN_SCAN.search(scan)
    if found is None or scan[found.end() - 1] == _END:
        return None
    return at + len(scan[: found.start()].rstrip(b"\xff"))


def jpeg_read_in_several_ways(data: bytes | bytearray | memoryview) -> bool:
    """Whether decoders make different pixels of a JPEG that is not damaged, where they crop or turn it.

    One of four channels, which nvImageCodec turns without asking whether its CMYK is inverted; and a progressive one
    that is unfinished.

    Raises:
        DecodeError: its header is none.
    """
    _, _, channels, progressive, _ = jpeg_size(data)
    return channels == 4 or (progressive and is_unfinished(data, channels))


def is_unfinished(data: bytes | bytearray | memoryview, channels: int) -> bool:
    """Whether a progressive JPEG ends before each of its coefficients is there to the last bit.

    Of such an image libjpeg smooths the borders between blocks by what it knows of their neighbours, which differ
    where only a part of the image is decoded; other decoders do not smooth.

    Args:
        data: the encoded image, whose header was checked.
        channels: of the image.
    """
    known: dict[int, set[int]] = {}  # of each component, by its name: the coefficients that are there to the last bit
    segments = jpeg_segments(data)
    whole = bytes(data)
    marker, start, at = segments[-1]
    for _ in range(_MOST_SCANS):
        if marker == _SCAN:
            count = whole[start] if start < at <= len(whole) else 0
            if at - start < 4 + 2 * count or not count:
                return True
            first, last, bits = whole[start + 1 + 2 * count : start + 4 + 2 * count]
            band = set(range(first, min(last, 63) + 1))
            for name in whole[start + 1 : start + 1 + 2 * count : 2]:
                had = known.setdefault(name, set())
                known[name] = had - band if bits & 15 else had | band
        found = MARKER_IN_SCAN.search(whole, at)
        if found is None or whole[found.end() - 1] == _END:
            break
        marker, start = whole[found.end() - 1], found.end() + 2
        at = start if marker == _WITHOUT_LENGTH else found.end() + int.from_bytes(whole[start - 2 : start], "big")
    else:
        return True
    return len(known) != channels or any(there != _COEFFICIENTS for there in known.values())
