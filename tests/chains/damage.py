"""damage: small shards of JPEG images, and the ways to break them."""

from __future__ import annotations

import gc
import io
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.extract.examples.encode import encode_example
from tests.chains.data import parse

OVERHEAD = 16  # bytes around a record: length, two CRCs


def jpeg(number: int, height: int = 24, width: int = 32) -> bytes:
    """A small photograph of its number: another for every number."""
    pixels = np.random.default_rng(number).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((width, height)).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(offset, marker, length) of each segment up to the first scan."""
    at = 2
    while True:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        yield at, marker, length
        if marker == 0xDA:
            return
        at += 2 + length


def _patched(data: bytes, markers: Sequence[int], offset: int, new: bytes) -> bytes:
    at = next(at for at, marker, _ in segments(data) if marker in markers) + 4 + offset
    return data[:at] + new + data[at + len(new) :]


def bad_scan(data: bytes) -> bytes:
    """A scan of a component that does not exist: header and end are good, only the decoder notices."""
    return _patched(data, (0xDA,), 1, b"\x63")


def bad_tables(data: bytes) -> bytes:
    """Huffman tables of absurd counts: only the decoder notices."""
    return _patched(data, (0xC4,), 1, b"\xff" * 16)


def bomb(data: bytes) -> bytes:
    """A header that says 30000x30000."""
    return _patched(data, (0xC0, 0xC2), 1, (30000).to_bytes(2, "big") * 2)


def cut(data: bytes) -> bytes:
    """The first 60 % of a file."""
    return data[: len(data) * 6 // 10]


def example(number: int, data: bytes | None = None, **changed: Any) -> bytes:
    """A record: the image and its number as label."""
    features: dict[str, Any] = {"image/encoded": jpeg(number) if data is None else data, "image/class/label": number}
    for name, value in changed.items():
        features["image/" + name.replace("_", "/")] = value
    return encode_example({name: value for name, value in features.items() if value is not None})


def write(path: Path, records: Sequence[bytes]) -> list[int]:
    """Write a shard; answer the offset of each record."""
    with gp.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return list(accumulate((len(record) + OVERHEAD for record in records[:-1]), initial=0))


def decoded(record: Any) -> Any:
    encoded, label = parse(record)
    return ops.decode_jpeg(encoded, channels=3), label


def events(ds: gp.Dataset) -> list[Any]:
    """What an iterator does until it ends: elements, and errors in their places."""
    found: list[Any] = []
    with ds.iterator(0) as items:
        while True:
            try:
                found.append(next(items))
            except StopIteration:
                return found
            except gp.DataError as error:
                error.__traceback__ = None
                found.append(error)


def labels_of(found: Sequence[Any]) -> list[Any]:
    """Labels of batches as lists, errors as they are."""
    return [item if isinstance(item, Exception) else item[1].tolist() for item in found]


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Fail if the block leaves a thread behind."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        gc.collect()  # of a cycle that holds an iterator; it takes longer than most tests here
        time.sleep(0.01)
    assert not left, f"threads left behind: {sorted(thread.name for thread in left)}"
