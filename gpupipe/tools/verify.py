"""verify: the bad records of many files, found in parallel, as a table and as a manifest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import field
from itertools import islice
from typing import Any

from gpupipe.errors import HIDES, DataError, ParseError, PlanError, shown_name
from gpupipe.extract.finder import DataFile
from gpupipe.extract.kinds import Kind, kind_at, size_of
from gpupipe.extract.records.compression import Compression
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.load.table import table
from gpupipe.progress import Progress
from gpupipe.tools.check import Job, Part
from gpupipe.tools.inspect_image import REFUSED
from gpupipe.tools.manifest import WholeManifest
from gpupipe.tools.schema import values_of
from gpupipe.tools.spread import check_all
from gpupipe.tools.text import byte_count, counted
from gpupipe.urls import without_secrets

from ..classes import dataclass

__all__ = ["Checked", "Report", "image_features", "verify"]

SHOWN_FILES = 20
"""Files with bad records that the table lists."""


SHOWN_CAUSES = 5
"""Causes that are counted below it."""


SHOWN_RECORDS = 1000
"""Bad records that `--json` lists; the manifest has all."""


WORTH = 16 << 20
"""Bytes of files for which one more process is started: that takes half a second."""


_LOOKED_AT = 16  # first records of a file that tell which features are images


@dataclass(slots=True)
class Checked:
    """What was found in one file.

    Attributes:
        path: of the file.
        size: in bytes, as stored.
        records: how many, good and bad.
        bad: how many of them are bad.
        unread: whether it could not be read to its end.
        first: the first bad record, as a dict of the manifest's fields; empty if there is none.
    """

    path: str
    size: int
    records: int = 0
    bad: int = 0
    unread: bool = False
    first: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """What was found in all files.

    Attributes:
        files: one for each file, in the order of their paths.
        features: the images that were decoded; none if checksums alone were checked.
        causes: how often each step failed for which reason.
        listed: the first bad records, as dicts of the manifest's fields.
        damaged: how many good records hold a JPEG that libjpeg decodes with a warning.
        warnings: the first of these warnings.
    """

    files: list[Checked]
    features: Sequence[str] = ()
    causes: Counter[str] = field(default_factory=Counter)
    listed: list[dict[str, Any]] = field(default_factory=list)
    damaged: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        """How many records are bad; a file that could not be read to its end counts as one."""
        return sum(file.bad for file in self.files)

    @property
    def records(self) -> int:
        """How many records there are, good and bad."""
        return sum(file.records for file in self.files)

    def json(self) -> dict[str, Any]:
        """Make the object that `gpupipe verify --json` prints."""
        return {
            "good": not self.bad,
            "records": self.records,
            "bad": self.bad,
            "decoded": list(self.features),
            "files": [
                {
                    "path": without_secrets(one.path),
                    "bytes": one.size,
                    "records": one.records,
                    "bad": one.bad,
                    "unread": one.unread,
                }
                for one in self.files
            ],
            "causes": dict(self.causes.most_common()),
            "bad_records": self.listed,
            "damaged": self.damaged,
            "warnings": self.warnings,
        }

    def text(self) -> str:
        """Lay it out for people: the files with bad records, the causes, and a line about all."""
        size = byte_count(sum(one.size for one in self.files))
        what = f"{counted(len(self.files), 'file')}, {counted(self.records, 'record')}, {size}"
        images = f", images in {', '.join(self.features)} decoded" if self.features else ""
        if not self.bad and not self.records:
            return f"{what}: there is nothing to check"
        if not self.bad:
            empty = sum(not one.records for one in self.files)
            also = f"; {counted(empty, 'file')} without records" if empty else ""
            return f"{what}: all good (lengths and payloads match their checksums{images}){also}{self._warned()}"
        worse = [one for one in self.files if one.bad]
        rows = [
            (shown_name(one.path), f"{one.records:,}{'+' * one.unread}", f"{one.bad:,}", _place(one.first))
            for one in worse[:SHOWN_FILES]
        ]
        lines = [table(("file", "records", "bad", "first bad record"), rows, (1, 2))]
        if len(worse) > SHOWN_FILES:
            lines.append(f"... and {counted(len(worse) - SHOWN_FILES, 'more file')} with bad records")
        lines.append("")
        lines += [f"{count:,} x {cause}" for cause, count in self.causes.most_common(SHOWN_CAUSES)]
        if len(self.causes) > SHOWN_CAUSES:
            lines.append(f"... and {counted(len(self.causes) - SHOWN_CAUSES, 'more cause')}")
        end = f"{what}: {self.bad:,} bad in {counted(len(worse), 'file')}{images}"
        return "\n".join([*lines, "", end + self._warned()])

    def _warned(self) -> str:
        if not self.damaged:
            return ""
        images = counted(self.damaged, "image")
        lines = [f"{images} with damaged data, which libjpeg decodes with a warning; {REFUSED}:", *self.warnings]
        return "\n" + "\n  ".join(lines)


def _place(record: dict[str, Any]) -> str:
    where = "" if record["offset"] is None else f"at offset {record['offset']}: "
    return f"{where}{record['reason'].partition(HIDES)[0]}"


def verify(
    files: Sequence[DataFile],
    *,
    compression: Compression | None = None,
    features: Sequence[str] = (),
    manifest: str | None = None,
    workers: int = 1,
) -> Report:
    """Check every record of some files; progress goes to stderr.

    Args:
        files: TFRecord files.
        compression: of all files, "", "GZIP" or "ZLIB"; None finds out for each.
        features: of images to decode in every record.
        manifest: a file to write, with one line for each bad record, as `Options.bad_records` reads it; it is there as
            a whole or not at all.
        workers: how many CPUs to use at most, >= 1.

    Raises:
        PlanError: no file holds TFRecords, or the manifest has no place.
        GpupipeError: the manifest cannot be written.
    """
    target = nullcontext() if manifest is None else WholeManifest(manifest, [file.path for file in files])
    sizes = [size_of(file.path) for file in files]
    kinds = _kinds(files)
    processes = min(len(files), workers, 1 + sum(sizes) // WORTH)
    threads = max(1, workers // processes)
    jobs = [Job(file.path, file.name, compression, tuple(features), threads) for file in files]
    report = Report([Checked(file.path, size) for file, size in zip(files, sizes, strict=True)], features)
    plain = compression == "" or (compression is None and not any(kind.compression for kind in kinds))
    waiting: dict[int, list[str]] = {}  # lines of files that come after one that is not finished
    done = [0] * len(files)
    finished, written = set[int](), 0
    with target as written_to, Progress() as progress:
        progress.start(f"checking {counted(len(files), 'file')}")
        for index, part in check_all(jobs, processes):
            _add(report, index, part)
            if part.lines:
                waiting.setdefault(index, []).extend(part.lines)
            if part.ended:
                finished.add(index)
            while written < len(files):
                lines = waiting.pop(written, ())
                if written_to is not None:
                    written_to.write(lines)
                report.listed += map(json.loads, islice(lines, SHOWN_RECORDS - len(report.listed)))
                if written not in finished:
                    break
                written += 1
            done[index] = sizes[index] if part.ended else min(part.at, sizes[index])
            if plain:
                progress.update(sum(done) // 1_000_000, sum(sizes) // 1_000_000, "MB")
            else:
                progress.update(report.records, unit="records")
    return report


def _kinds(files: Sequence[DataFile]) -> list[Kind]:
    """What the files are.

    Raises:
        PlanError: none of them may hold TFRecords.
    """
    kinds = [kind_at(file.path) for file in files]
    if all(kind.name != "TFRecord" for kind in kinds):
        also = f"; `gpupipe inspect {files[0].path}` says what is in it" if kinds[0].is_image else ""
        raise PlanError(f"TFRecord files are needed, got {files[0].path!r}, which is {kinds[0].name}{also}")
    return kinds


def _add(report: Report, index: int, part: Part) -> None:
    file = report.files[index]
    file.records += part.records
    file.bad += part.bad
    file.unread = file.unread or part.unread
    report.causes.update(part.causes or {})
    report.damaged += part.damaged
    report.warnings += part.warnings[: SHOWN_CAUSES - len(report.warnings)]
    if part.lines and not file.first:
        file.first = json.loads(part.lines[0])


def image_features(files: Sequence[DataFile], compression: Compression | None) -> list[str]:
    """Find the features that hold an image: those of the first records with any, in the first file that has them.

    Raises:
        PlanError: no record at the start of any file has one.
    """
    others: set[str] = set()
    for file in files:
        codec = kind_at(file.path).compression if compression is None else compression
        found: dict[str, None] = {}
        for _, payload in islice(RecordReader(file.path, compression=codec), _LOOKED_AT):
            if isinstance(payload, DataError):
                continue
            try:
                values = values_of(payload)
            except ParseError:
                continue
            others.update(values)
            found.update(dict.fromkeys(name for name, one in values.items() if one.count == 1 and one.kind))
        if found:
            return sorted(found)
    known = f"features {', '.join(sorted(others)[:20])}" if others else "no tf.train.Example"
    raise PlanError(
        f"--decode needs records with an image, and the first ones have {known}; name the feature with --feature"
    )
