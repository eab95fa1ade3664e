"""shard: files that are complete or not there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpupipe.extract.records.walk import Good, walk_headers
from gpupipe.extract.records.writer import TFRecordWriter

__all__ = ["records_in", "replacing", "sync_folder", "write_shard"]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write to; after the block the file is on the disk and has the name `path`, or it is gone."""
    part = path.with_name(f".{path.name.lstrip('.')}.part")
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk; Windows does that by itself."""
    if sys.platform != "win32":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_shard(path: Path, records: Iterable[bytes]) -> tuple[int, int]:
    """Write a TFRecord file; it has its name when it is complete and on the disk.

    Returns:
        Its records and its bytes.

    Raises:
        OSError: it cannot be written; nothing is left of it then.
    """
    count = 0
    with replacing(path) as part, TFRecordWriter(part) as writer:
        for record in records:
            writer.write(record)
            count += 1
    return count, path.stat().st_size


def records_in(path: Path) -> int | None:
    """Count the records of a file by their headers; None if it is damaged or not there."""
    count = 0
    for part in walk_headers(str(path)):
        if not isinstance(part, Good):
            return None
        count += len(part.offsets)
    return count
