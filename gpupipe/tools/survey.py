"""survey: one pass over TFRecord files: sizes, checksums, damage, and a sample of the records."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from gpupipe.errors import DataError, ParseError
from gpupipe.extract.finder import DataFile
from gpupipe.extract.kinds import kind_at, size_of
from gpupipe.extract.records.compression import Compression
from gpupipe.extract.records.framing import WRONG_PAYLOAD
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.progress import Progress
from gpupipe.tools.sample import Sample
from gpupipe.tools.schema import Column, Values, image_of, parse_call, schema_of, values_of
from gpupipe.tools.text import counted
from gpupipe.urls import without_secrets

from ..classes import dataclass

__all__ = ["Survey", "Surveyed", "survey"]

LISTED = 10
"""Damaged places of a file that are listed."""


@dataclass(slots=True)
class Surveyed:
    """What a file holds.

    Attributes:
        path: of the file.
        size: in bytes, as stored.
        compression: "", "GZIP" or "ZLIB".
        lengths: bytes of the payload of each readable record, in file order.
        wrong_payloads: records whose payload does not match its checksum.
        damaged: other damage: of a length, a record that is cut off, compressed data.
        unread: why the file could not be read to its end; "" if it could.
        listed: the first damaged places, (offset, reason).
    """

    path: str
    size: int
    compression: Compression = ""
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    wrong_payloads: int = 0
    damaged: int = 0
    unread: str = ""
    listed: list[tuple[int | None, str]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.wrong_payloads or self.damaged or self.unread)

    def add(self, error: DataError) -> None:
        """Count a damaged place."""
        if error.lost:
            self.unread = error.reason.partition("; its records cannot be counted")[0]
            return
        if WRONG_PAYLOAD in error.reason:
            self.wrong_payloads += 1
        else:
            self.damaged += 1
        if len(self.listed) < LISTED:
            self.listed.append((error.offset, error.reason))

    def json(self) -> dict[str, Any]:
        """Make the entry of `gpupipe inspect --json`."""
        return {
            "path": without_secrets(self.path),
            "bytes": self.size,
            "compression": self.compression or None,
            "readable_records": len(self.lengths),
            "payload_bytes": spread_of([self.lengths]),
            "wrong_payload_checksums": self.wrong_payloads,
            "other_damage": self.damaged,
            "unread": self.unread or None,
            "damage": [{"offset": offset, "reason": reason} for offset, reason in self.listed],
        }


@dataclass(slots=True)
class Survey:
    """What some files hold.

    Attributes:
        files: one for each.
        sample: how many records were looked into.
        examples: how many of them are a `tf.train.Example`.
        columns: their features.
        other: why a record of the sample is no Example; "" if all are.
        images: encoded images of the sample, for thumbnails.
    """

    files: list[Surveyed]
    sample: int
    examples: int
    columns: list[Column]
    other: str
    images: list[bytes]

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged in any file."""
        return all(file.whole for file in self.files)

    @property
    def records(self) -> int:
        """How many records can be read."""
        return sum(len(file.lengths) for file in self.files)

    def json(self) -> dict[str, Any]:
        """Make the object that `gpupipe inspect --json` prints."""
        return {
            "files": [file.json() for file in self.files],
            "readable_records": self.records,
            "payload_bytes": spread_of([file.lengths for file in self.files]),
            "sample": {"records": self.sample, "examples": self.examples, "other": self.other or None},
            "features": [column.json() for column in self.columns],
            "parse_single_example": parse_call(self.columns, self.examples) if self.columns else None,
        }


def spread_of(lengths: Sequence[array[int]]) -> dict[str, int] | None:
    """The least, the median and the most bytes of a payload; None without records."""
    every = np.concatenate([np.frombuffer(one, np.uint64) for one in lengths if len(one)] or [np.empty(0, np.uint64)])
    if not len(every):
        return None
    return {"min": int(every.min()), "median": int(np.median(every)), "max": int(every.max())}


def survey(files: Sequence[DataFile], compression: Compression | None, sample: int, thumbnails: int = 0) -> Survey:
    """Read some files once, in this process; progress goes to stderr.

    Args:
        files: TFRecord files.
        compression: of all of them; None finds out for each.
        sample: how many records to look into, at most, evenly spread over all.
        thumbnails: how many images to keep, at most, evenly spread.
    """
    looked = Sample(sample, _looked_at)
    kept = Sample(thumbnails, _first_image) if thumbnails else None
    found: list[Surveyed] = []
    with Progress() as progress:
        sizes = [size_of(file.path) for file in files]
        progress.start(f"reading {counted(len(files), 'file')}")
        for number, (file, size) in enumerate(zip(files, sizes, strict=True)):
            one = Surveyed(file.path, size, kind_at(file.path).compression if compression is None else compression)
            found.append(one)
            before = sum(sizes[:number])
            for block in RecordReader(file.path, compression=one.compression).blocks():
                good = [item[1] for item in block if not isinstance(item[1], DataError)]
                one.lengths.extend(map(len, good))
                if len(good) < len(block):
                    for _, error in block:
                        if isinstance(error, DataError):
                            one.add(error)
                looked.add(good)
                if kept is not None:
                    kept.add(good)
                if one.compression:  # where in the file that is, only its end will tell
                    progress.update(sum(len(other.lengths) for other in found), unit="records")
                else:
                    at = before + min(block[-1][0], size)
                    progress.update(at // 1_000_000, sum(sizes) // 1_000_000, "MB")
    examples = [record for record in looked.kept if isinstance(record, dict)]
    other = next((record for record in looked.kept if isinstance(record, str)), "")
    images = [image for image in kept.kept if image] if kept is not None else []
    return Survey(found, len(looked.kept), len(examples), schema_of(examples), other, images)


def _looked_at(payload: memoryview) -> dict[str, Values] | str:
    """The features of a record, or why it has none."""
    try:
        return values_of(payload)
    except ParseError as error:
        return error.reason


def _first_image(payload: memoryview) -> bytes:
    """The first image in a record, b"" if there is none."""
    try:
        names = [name for name, values in sorted(values_of(payload).items()) if values.kind]
    except ParseError:
        return b""
    return image_of(payload, names[0]) if names else b""
