"""image_files: small image files of every kind that there is, made by hand where Pillow writes only some of them."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from gpupipe.ops._shared.samples import picture

HEIGHT, WIDTH = 19, 27

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a PNG, by its colour type
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)

Samples = npt.NDArray[Any]


def written(image: Any, kind: str, **how: Any) -> bytes:
    """An image as Pillow writes it."""
    stream = io.BytesIO()
    image.save(stream, kind, **how)
    return stream.getvalue()


def files() -> Iterator[tuple[str, bytes]]:
    """The name and the bytes of one file of each kind."""
    yield from _pngs()
    yield from _bmps()
    yield from _jpegs()
    colours = Image.fromarray(picture(HEIGHT, WIDTH))
    clear = Image.merge("RGBA", (*colours.split(), colours.getchannel(1)))
    for kind, image in (("colours", colours), ("transparency", clear)):
        yield f"webp of {kind}", written(image, "WEBP")
        yield f"lossless webp of {kind}", written(image, "WEBP", lossless=True)
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr"):
        yield f"tiff {mode}", written(colours.convert(mode), "TIFF", compression="tiff_lzw")
    for how in ("tiff_adobe_deflate", "packbits", "jpeg", "zstd", "group3", "group4"):
        for mode in "1" if how.startswith("group") else ("L", "RGB"):
            yield f"tiff {mode} {how}", written(colours.convert(mode), "TIFF", compression=how)
    yield "tiff of 16 bits", written(Image.fromarray(_samples(16, 1)[:, :, 0].astype(np.uint16)), "TIFF")


def png(
    colour: int, bits: int, interlaced: bool = False, transparent: Sequence[int] = (), samples: Samples | None = None
) -> bytes:
    """A PNG of a colour type and a depth.

    Args:
        colour: 0 gray, 2 colours, 3 a palette, 4 gray and 6 colours with transparency.
        bits: of a sample.
        interlaced: whether it is stored in seven passes.
        transparent: what its tRNS holds: of a palette the transparency of its colours, else a colour.
        samples: the pixels; noise if not given.
    """
    pixels = _samples(bits, _CHANNELS[colour]) if samples is None else samples
    if interlaced:
        parts = [pixels[y::down, x::right] for y, x, down, right in ADAM7]
        raw = b"".join(_packed(part, bits) for part in parts if part.size)
    else:
        raw = _packed(pixels, bits)
    chunks = [chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, colour, 0, 0, interlaced))]
    if colour == 3:
        chunks.append(chunk(b"PLTE", np.random.default_rng(9).bytes(3 << bits)))
    if transparent:
        form = f">{len(transparent)}{'B' if colour == 3 else 'H'}"
        chunks.append(chunk(b"tRNS", struct.pack(form, *transparent)))
    chunks += [chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def bmp(bits: int, *, gray: bool = True, header: int = 40, colours: int = 0, upward: bool = True) -> bytes:
    """A BMP, of noise.

    Args:
        bits: of a pixel.
        gray: whether its palette is a gray one.
        header: bytes of the second header, which is what tells the versions of the format apart.
        colours: how many colours the palette has; 0 for as many as the bits can tell apart.
        upward: whether the last row comes first.
    """
    n = (colours or 1 << bits) if bits <= 8 else 0
    tones = [i * 255 // max(n - 1, 1) for i in range(n)]
    pad = b"" if header == 12 else b"\0"
    palette = b"".join(bytes((tone, tone if gray else 255 - tone, tone)) + pad for tone in tones)
    body = np.random.default_rng(bits).integers(0, 256, (HEIGHT, (WIDTH * bits + 31) // 32 * 4), np.uint8)
    if bits == 8:
        body %= np.uint8(n - 1)
    begin = 14 + header + len(palette)
    if header == 12:
        info = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits)
    else:
        rows = HEIGHT if upward else -HEIGHT
        info = struct.pack("<IiiHHIIiiII", header, WIDTH, rows, 1, bits, 0, body.size, 0, 0, colours, 0)
        info = info.ljust(header, b"\0")
    return b"BM" + struct.pack("<IHHI", begin + body.size, 0, 0, begin) + info + palette + body.tobytes()


def unfinished(data: bytes, scans_kept: int) -> bytes:
    """A progressive JPEG that ends, with its end marker, behind so many of its scans."""
    places = scans(data)
    return data[: places[scans_kept]] + b"\xff\xd9" if scans_kept < len(places) else data


def scans(data: bytes) -> list[int]:
    """Where the scans of a JPEG begin."""
    found, at = [], 2
    while data[at + 1] != 0xD9:
        scan = data[at + 1] == 0xDA
        found += [at] * scan
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if scan:
            marker = _MARKER.search(data, at)
            assert marker is not None
            at = marker.start()
    return found


def _pngs() -> Iterator[tuple[str, bytes]]:
    depths = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    names = {0: "gray", 2: "colours", 3: "palette", 4: "gray with alpha", 6: "rgba"}
    for colour, bits in ((colour, bits) for colour, all_bits in depths.items() for bits in all_bits):
        yield f"png {names[colour]} {bits}", png(colour, bits)
        yield f"png {names[colour]} {bits} interlaced", png(colour, bits, interlaced=True)
        if colour == 3:
            yield f"png palette {bits} transparent", png(colour, bits, transparent=(0, 128))


def _bmps() -> Iterator[tuple[str, bytes]]:
    for bits in (1, 4, 8):
        for gray in (True, False):
            for header in (12, 40, 108, 124):
                name = f"bmp {bits} bits {'gray' if gray else 'coloured'} header {header}"
                yield name, bmp(bits, gray=gray, header=header)
        yield f"bmp {bits} bits downward", bmp(bits, upward=False)
    yield "bmp with a short gray palette", bmp(8, colours=200)
    yield "bmp with a short coloured palette", bmp(8, gray=False, colours=200)
    for bits in (16, 24, 32):
        yield f"bmp {bits} bits", bmp(bits)


def _jpegs() -> Iterator[tuple[str, bytes]]:
    for mode in ("L", "RGB", "CMYK"):
        for subsampling in (0, 1, 2)[: 1 if mode == "L" else 3]:
            for progressive in (False, True):
                image = Image.fromarray(picture(HEIGHT, WIDTH)).convert(mode)
                data = written(image, "JPEG", quality=80, subsampling=subsampling, progressive=progressive)
                yield f"jpeg {mode} {subsampling}{' progressive' * progressive}", data
                if mode == "CMYK":
                    at = data.index(b"Adobe")
                    name = f"{subsampling}{' progressive' * progressive}"
                    yield f"jpeg YCCK {name}", data[: at + 11] + b"\2" + data[at + 12 :]
                    yield f"jpeg CMYK {name} without Adobe", data[: at - 4] + data[at + 12 :]


def _samples(bits: int, channels: int) -> Samples:
    return np.random.default_rng((bits, channels)).integers(0, 1 << bits, (HEIGHT, WIDTH, channels))


def _packed(pixels: Samples, bits: int) -> bytes:
    """Rows of samples as PNG stores them, without a prediction."""
    out = b""
    for row in pixels.reshape(len(pixels), -1):
        if bits >= 8:
            out += b"\0" + row.astype(f">u{bits // 8}").tobytes()
        else:
            digits = "".join(f"{sample:0{bits}b}" for sample in row)
            digits += "0" * (-len(digits) % 8)
            out += b"\0" + int(digits, 2).to_bytes(len(digits) // 8, "big")
    return out


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def changed(data: bytes, at: int, new: bytes | int) -> bytes:
    """The same with other bytes at a place; negative numbers count from the end."""
    at %= len(data)
    new = bytes([new]) if isinstance(new, int) else new
    return data[:at] + new + data[at + len(new) :]


def tag(data: bytes, number: int, field: int, value: int) -> bytes:
    """A TIFF with another number (field 0), type (2), count (4) or value (8) of one of its tags."""
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    places = range(at + 2, at + 2 + 12 * count, 12)
    place = next(place for place in places if struct.unpack_from("<H", data, place) == (number,))
    return changed(data, place + field, struct.pack("<H" if field <= 2 else "<I", value))
