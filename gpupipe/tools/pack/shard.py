"""shard: a TFRecord file that is complete or not there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpupipe.extract.records.walk import Good, walk_headers
from gpupipe.extract.records.writer import framed
from gpupipe.extract.storage.replacing import replacing

__all__ = ["records_in", "write_shard"]


def write_shard(path: Path, records: Iterable[bytes]) -> tuple[int, int]:
    """Write a TFRecord file; it has its name when it is complete and on the disk, in place of whatever was there.

    Returns:
        Its records and its bytes.

    Raises:
        OSError: it cannot be written; nothing is left of it then.
    """
    count = 0
    with replacing(path, own=True) as file:
        for record in records:
            file.write(framed(record))
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
