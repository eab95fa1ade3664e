"""manifests: TFRecord files with their manifest, and the manifest of files that are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from crc32c import crc32c

import gpupipe as gp
from gpupipe.extract.records.manifest import BLOCK, END, MAGIC, VERSION
from gpupipe.extract.records.manifest_writer import NAME, write_manifest


def written(folder: Path, counts: list[int], size: int = 1) -> tuple[str, list[str], list[list[bytes]]]:
    """Write files of records of up to 6 * size bytes; return their manifest, their paths and the records of each."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, values = [], []
    for i, count in enumerate(counts):
        path = folder / f"{i:03d}.tfrecord"
        with gp.io.TFRecordWriter(path) as out:
            values.append([b"%d:%d" % (i, j) * size for j in range(count)])
            for value in values[-1]:
                out.write(value)
        paths.append(str(path))
    manifest = str(folder / NAME)
    write_manifest(paths, manifest, 1)
    return manifest, paths, values


def pretended(path: Path, counts: list[int], length: int = 100, scheme: bytes = b"file") -> Path:
    """Write the manifest of files of records of `length` bytes, headers included, that are not there."""
    with open(path, "wb") as out:
        out.write(MAGIC)
        for count in counts:
            for first in range(0, count, BLOCK):
                data = (np.arange(first, min(first + BLOCK, count) + 1, dtype="<u8") * length).tobytes()
                out.write(data + crc32c(data).to_bytes(8, "little"))
        numbers = np.array([[count * length for count in counts], counts, [0] * len(counts)], "<u8").tobytes()
        text = "".join(f"photos-{i:05d}.tfrecord\n" for i in range(len(counts))).encode()
        out.write(numbers + text)
        out.write(END.pack(scheme, VERSION, crc32c(numbers + text), len(counts), len(text), MAGIC))
    return path
