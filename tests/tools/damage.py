"""damage: TFRecord files and the ways in which they break."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupipe.extract.records.writer import TFRecordWriter

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "GZIP": lambda data: gzip.compress(data, 1, mtime=0),
    "ZLIB": lambda data: zlib.compress(data, 1),
}


def write(path: Path, records: Sequence[bytes]) -> bytes:
    """Write an uncompressed file; return its bytes."""
    with TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def broken(data: bytes, rng: np.random.Generator) -> bytes:
    """The bytes of a file after up to three kinds of damage."""
    for kind in rng.choice(["flip", "zeros", "cut", "drop", "insert", "length"], rng.integers(1, 4)):
        at, n = int(rng.integers(0, max(len(data), 1))), int(rng.integers(1, 40))
        noise = rng.integers(0, 256, n, np.uint8).tobytes()
        instead, taken = {
            "flip": (bytes(byte ^ 16 for byte in data[at : at + 1]), 1),
            "zeros": (bytes(n), n),
            "cut": (b"", len(data)),
            "drop": (b"", n),
            "insert": (noise, 0),
            "length": ((1 << 50).to_bytes(8, "little"), 8),
        }[kind]
        data = data[:at] + instead + data[at + taken :]
    return data


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a manifest in the order of their places, without what differs between runs: the folder."""
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in found:
        line["file"] = Path(line["file"]).name
    return sorted(found, key=lambda line: (line["file"], line["offset"]))


OLD_MANIFEST = json.dumps(dict.fromkeys(("file", "offset", "unit", "key", "stage", "reason", "action", "epoch"))) + "\n"
"""What is known as a manifest, and so may be replaced."""
