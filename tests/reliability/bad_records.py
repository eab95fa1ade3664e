"""bad_records: a data set with bad records of twelve kinds and odd good ones, beside the same one undamaged.

All records have one length, so a damaged one changes no other's offset, and with it no other's random crop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.extract.examples.encode import encode_example
from tests.chains import damage
from tests.chains.damage import OVERHEAD, segments
from tests.chains.data import parse
from tests.fuzz.building import frame
from tests.reliability.image_files import written

LENGTH = 6000
BATCH = 16
INT = gp.TensorSpec((), "int64")
HEIGHT, WIDTH = 48, 64


def photograph(number: int, mode: str = "RGB", kind: str = "JPEG", **how: Any) -> bytes:
    """A small photograph, another for every number."""
    pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
    return written(Image.fromarray(pixels).resize((WIDTH, HEIGHT)).convert(mode), kind, **how)


def without(data: bytes, lost: int) -> bytes:
    """A JPEG without its segments of one kind."""
    kept = [data[at : at + 2 + length] for at, marker, length in segments(data) if marker != lost]
    *_, (last, _, length) = segments(data)
    return data[:2] + b"".join(kept) + data[last + 2 + length :]


def twelve_bits(data: bytes) -> bytes:
    """A frame header that says 12 bits."""
    at = next(at for at, marker, _ in segments(data) if marker == 0xC0) + 4
    return data[:at] + b"\x0c" + data[at + 1 :]


def flipped(data: bytes, bits: int = 50) -> bytes:
    """Some bits of the scan flipped."""
    *_, (at, _, length) = segments(data)
    first = at + 2 + length
    rng = np.random.default_rng(len(data))
    changed = bytearray(data)
    for place in rng.choice(len(data) - 2 - first, bits, replace=False) + first:
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def cut_in_header(data: bytes) -> bytes:
    """A JPEG that ends inside its frame header."""
    return data[: next(at for at, marker, _ in segments(data) if marker == 0xC0) + 6]


# What stands in the record of this number, in place of its photograph. None: no image feature at all.
BAD: dict[str, Callable[[int], bytes | None]] = {
    "cut at 90 %": lambda n: photograph(n)[: len(photograph(n)) * 9 // 10],
    "cut inside the header": lambda n: cut_in_header(photograph(n)),
    "garbage": lambda n: np.random.default_rng(n).bytes(500),
    "zero bytes": lambda n: b"",
    "GIF named jpg": lambda n: photograph(n, kind="GIF"),
    "payload changed under its CRC": lambda n: photograph(n),
    "missing feature": lambda n: None,
    "12 bits": lambda n: twelve_bits(photograph(n)),
    "30000x30000": lambda n: damage.bomb(photograph(n)),
    "DQT removed": lambda n: without(photograph(n), 0xDB),
    "Huffman counts of 255": lambda n: damage.bad_tables(photograph(n)),
    "SOS naming an absent component": lambda n: damage.bad_scan(photograph(n)),
}
DECODER_ONLY = ("DQT removed", "Huffman counts of 255", "SOS naming an absent component")
STAGES = {"payload changed under its CRC": "read", "missing feature": "parse_single_example"}  # the others: decode_jpeg

# Odd, but images: in the damaged data set and in the undamaged one.
GOOD: dict[str, Callable[[int], bytes]] = {
    "CMYK": lambda n: photograph(n, "CMYK"),
    "progressive": lambda n: photograph(n, progressive=True),
    "gray": lambda n: photograph(n, "L"),
    "bytes after EOI": lambda n: photograph(n) + b"\0\xff\xd8 and more" * 9,
    "missing DHT": lambda n: without(photograph(n), 0xC4),
    "50 bits flipped": lambda n: flipped(photograph(n)),
}
_ODD = 10  # every tenth record is an odd one


def has_flipped_bits(number: int) -> bool:
    """Whether the compressed data of an odd one is damaged, so that its pixels depend on the decoder."""
    return number % _ODD == _ODD // 2 and list(GOOD)[number // _ODD % len(GOOD)] == "50 bits flipped"


def record(number: int, data: bytes | None) -> bytes:
    """The record of a number, filled up to `LENGTH` bytes."""
    features: dict[str, Any] = {"image/class/label": number}
    if data is not None:
        features["image/encoded"] = data
    filler = LENGTH - len(encode_example({**features, "filler": bytes(LENGTH)})) + LENGTH
    while len(made := encode_example({**features, "filler": bytes(filler)})) != LENGTH:
        filler += LENGTH - len(made)
    return made


def good(number: int) -> bytes:
    """The record of a number in the undamaged data set."""
    kinds = list(GOOD.values())
    odd = number % _ODD == _ODD // 2
    return record(number, kinds[number // _ODD % len(kinds)](number) if odd else photograph(number))


def bad(number: int, kind: str) -> bytes:
    """The same record, damaged. A payload that does not fit its CRC is made in the file, see `Shards.damaged`."""
    return record(number, BAD[kind](number))


@dataclass(frozen=True)
class Shards:
    """Some shards of `count` records in all, in a folder of their own.

    Attributes:
        folder: that holds them.
        count: of records; record n has the label n.
        files: how many; record n is number n // files of file n % files.
    """

    folder: Path
    count: int
    files: int

    def write(self) -> Shards:
        """Write the undamaged data set."""
        self.folder.mkdir()
        for file in range(self.files):
            damage.write(self.path(file), [good(number) for number in range(file, self.count, self.files)])
        return self

    def path(self, number: int) -> Path:
        """The file of a record."""
        return self.folder / f"{number % self.files}.tfrecord"

    def offset(self, number: int) -> int:
        """The byte offset of a record."""
        return number // self.files * (LENGTH + OVERHEAD)

    def damaged(self, folder: Path, kinds: dict[int, str]) -> Shards:
        """A copy in which the records of these numbers are bad."""
        other = Shards(folder, self.count, self.files)
        folder.mkdir()
        contents = [bytearray(self.path(file).read_bytes()) for file in range(self.files)]
        for number, kind in kinds.items():
            whole = bytearray(frame(bad(number, kind)))
            if kind == "payload changed under its CRC":
                whole[LENGTH // 3] ^= 1
            start = self.offset(number)
            contents[number % self.files][start : start + len(whole)] = whole
        for file, content in enumerate(contents):
            other.path(file).write_bytes(content)
        return other

    def dataset(self) -> gp.Dataset:
        """Every record once, as a training chain reads them."""
        return (
            gp.Dataset.list_files(str(self.folder / "*.tfrecord"), shuffle=False)
            .interleave(gp.TFRecordDataset, cycle_length=self.files, num_parallel_calls=gp.AUTOTUNE)
            .shuffle(64, seed=3)
            .map(train)
        )


def train(example: Any) -> Any:
    """Decode, crop and flip; whole numbers only, so that there is nothing to round."""
    encoded, label = parse(example)
    image = ops.random_crop(ops.decode_jpeg(encoded, channels=3), (40, 48))
    return ops.random_flip_left_right(image), label


def kinds_in_turn(numbers: Iterable[int]) -> dict[int, str]:
    """The twelve kinds, over and over."""
    names = list(BAD)
    return {number: names[i % len(names)] for i, number in enumerate(numbers)}


def inverse(x: Any) -> Any:
    """Numbers that are no multiple of 3; the others fail."""
    return int(x) if int(x) % 3 else 1 // 0


def doubled(rows: Any) -> Any:
    """One that keeps it."""
    return np.array(rows.tolist()) * 2


def rows_of(ds: gp.Dataset) -> tuple[list[list[tuple[int, Any]]], Any]:
    """Batches as rows (label, image), and the iterator that gave them."""
    with ds.iterator(0) as items:
        return [
            [(int(label), image.copy()) for label, image in zip(host(labels), host(images), strict=True)]
            for images, labels in items
        ], items


def host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get() if hasattr(array, "get") else np.asarray(array)


def same(left: Any, right: Any, executor: str) -> bool:
    """Whether two images are one. On a GPU the decoder may depend on the place in the batch."""
    if executor == "gpu":
        return bool(np.abs(left.astype(int) - right.astype(int)).max() <= 3)
    return bool(np.array_equal(left, right))
