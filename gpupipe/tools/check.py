"""check: every record of one file, and on request every image, by the rules of the readers that training uses.

A record is bad here exactly if a chain over the file would find it bad: the records come from the same reader, features
from the same parser, images from the same decoder.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from gpupipe.errors import DataError, shown_name
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import FixedLenFeature
from gpupipe.extract.images.decode import damage_of, decode
from gpupipe.extract.kinds import kind_at
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.storage.names import Names
from gpupipe.extract.storage.patterns import is_url
from gpupipe.flow.bad.records import cause_of, line_of, whole_name
from gpupipe.flow.element import Hole, Stream
from gpupipe.flow.run import Context, Run, bad_record
from gpupipe.flow.sources.arrays import named_streams
from gpupipe.flow.sources.readers import REMOTE_BLOCK
from gpupipe.options import Options
from gpupipe.threads import DaemonPool

from ..classes import dataclass

__all__ = ["Job", "Part", "check"]

INTERVAL = 0.2
"""Seconds between two parts of one file."""


LINES = 1000
"""Bad records after which a part is given, whatever the time."""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to check, as plain data that can be sent to a process as JSON.

    Attributes:
        path: of the file.
        name: what identifies it in any directory.
        compression: "", "GZIP" or "ZLIB"; None finds out.
        features: of images that are to be decoded, in every record; none checks the checksums alone.
        threads: that decode.
    """

    path: str
    name: str
    compression: str | None = None
    features: Sequence[str] = ()
    threads: int = 1


class Part(NamedTuple):
    """What was found since the last part of a file.

    Attributes:
        records: how many, good and bad.
        at: the offset that was reached, in the decompressed stream if the file is compressed.
        bad: how many bad records, lost files included.
        lines: the lines of a manifest, one for each of them.
        causes: how often each step failed for which reason.
        damaged: how many good records hold a JPEG whose data is damaged, and which libjpeg decodes with a warning.
        warnings: where the first of them are, and what it warns of.
        unread: whether the file could not be read to its end, so that there may be more records.
        failure: why checking ended: an error that no data explains; "" if there was none.
        ended: whether this is the last part.
    """

    records: int = 0
    at: int = 0
    bad: int = 0
    lines: Sequence[str] = ()
    causes: dict[str, int] | None = None
    damaged: int = 0
    warnings: Sequence[str] = ()
    unread: bool = False
    failure: str = ""
    ended: bool = False


def check(job: Job) -> Iterator[Part]:
    """Check one file, in parts of a fraction of a second. Never raises a DataError."""
    run = Run(Options().resolve())
    pool = DaemonPool(job.threads, "gpupipe-decode") if job.features and job.threads > 1 else None
    try:
        yield from _parts(job, Context(run), pool)
    finally:
        run.close()
        if pool is not None:
            pool.close()


def _parts(job: Job, at: Context, pool: DaemonPool | None) -> Iterator[Part]:
    stream = _stream(job, at)
    examine = _examiner(job.features)
    records = offset = 0
    unread = False
    bad: list[tuple[int, DataError]] = []
    damaged: list[tuple[int, str]] = []
    shown = time.monotonic()
    for block in _reader(job, at.run).blocks():
        records += len(block)
        offset = block[-1][0]
        wrong = [item for item in block if isinstance(item[1], DataError)]
        if examine is not None:
            for where, found in _examined(block, examine, pool):
                if isinstance(found, str):
                    damaged.append((where, found))
                else:
                    wrong.append((where, found))
            wrong.sort(key=_offset)
        if wrong:
            bad += wrong
            lost = sum(error.lost for _, error in wrong)
            records -= lost
            unread = unread or lost > 0
        if len(bad) >= LINES or time.monotonic() - shown > INTERVAL:
            yield _part(records, offset, bad, stream, damaged)
            records, bad, damaged, shown = 0, [], [], time.monotonic()
    yield _part(records, offset, bad, stream, damaged)._replace(unread=unread, ended=True)


def _reader(job: Job, run: Run) -> RecordReader:
    compression = kind_at(job.path).compression if job.compression is None else job.compression
    if is_url(job.path):
        return RecordReader(
            job.path,
            compression=compression,
            block=REMOTE_BLOCK,
            readers=run.remote.pool,
            budget=run.remote.budget,
        )
    return RecordReader(job.path, compression=compression)


def _stream(job: Job, at: Context) -> Stream:
    """The stream of the file's records in ``list_files(...).interleave(TFRecordDataset)``, named by the whole path."""
    path = whole_name(job.path)
    (file,) = named_streams(at, Names([job.name]), [0], [path])
    return at.inside(file, 0).stream("records", path, "offset")


def _offset(item: tuple[int, Any]) -> int:
    return item[0]


def _part(
    records: int,
    offset: int,
    bad: Sequence[tuple[int, DataError]],
    stream: Stream,
    damaged: Sequence[tuple[int, str]],
) -> Part:
    lines: list[str] = []
    causes = Counter[str]()
    for at, error in bad:
        error.at(stream.name, at, "read").file = stream.name  # the whole path, wherever training is started
        record = bad_record((Hole(error), stream, at), "left out", 0)
        lines.append(line_of(record).decode())
        causes[cause_of(record)] += 1
    warnings = [f"{shown_name(stream.name)} at offset {at}: {text}" for at, text in damaged[:_MOST_WARNINGS]]
    return Part(records, offset, len(bad), lines, dict(causes), len(damaged), warnings)


_MOST_WARNINGS = 5

Examine = Callable[[memoryview | bytes], DataError | str]
"""The error of a record, or what libjpeg warns of, "" where all is well."""


def _examiner(features: Sequence[str]) -> Examine | None:
    """Make the function that parses a record and decodes its images; None if there are no features."""
    if not features:
        return None
    parse = ExampleParser({name: FixedLenFeature((), bytes) for name in features}).parse

    def examine(payload: memoryview | bytes) -> DataError | str:
        damage = ""
        try:
            for image in parse(payload):
                decode(image)
                damage = damage or damage_of(image)
        except DataError as error:
            return error.at(stage="decode_image").kept()
        return damage

    return examine


def _examined(
    block: Sequence[tuple[int, Any]], examine: Examine, pool: DaemonPool | None
) -> list[tuple[int, DataError | str]]:
    """The records of a block whose image cannot be decoded, or only with a warning."""
    good = [item for item in block if not isinstance(item[1], DataError)]
    if pool is None:
        results = [examine(payload) for _, payload in good]
    else:
        futures: list[Future[DataError | str]] = [pool.submit(examine, payload) for _, payload in good]
        results = [future.result() for future in futures]
    return [(at, found) for (at, _), found in zip(good, results, strict=True) if found]
