"""Fuzz target: the metadata of Arrow IPC files, of which gpupipe reads the rows of each batch by itself.

The first byte says whether the rest is a whole file, or a footer that is put behind the messages of a good one.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from gpupipe.errors import DataError
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables import ipc
from tests.fuzz.files import Memory

WHOLE = 1


class Counted(Memory):
    """A file that counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.taken = 0

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        self.taken += n
        return super().read(name, offset, n, tag)


@lru_cache(1)
def schema() -> Any:
    """The schema of the files."""
    import pyarrow as pa

    return pa.schema([("a", pa.int8())])


@lru_cache(1)
def messages() -> tuple[bytes, bytes]:
    """A file of two batches up to its footer, and the footer."""
    import io

    import pyarrow as pa

    out = io.BytesIO()
    with pa.ipc.new_file(out, schema()) as writer:
        for rows in (3, 5):
            writer.write_batch(pa.record_batch([list(range(rows))], schema=schema()))
    data = out.getvalue()
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    return data[: -10 - length], data[-10 - length : -10]


def one(data: bytes, thorough: bool = True) -> None:
    """Read the rows of the batches: an error, or numbers; never more bytes than a few times those of the file."""
    if not data:
        return
    body = data[1:]
    if not data[0] & WHOLE:
        body = messages()[0] + body + struct.pack("<i", len(body)) + b"ARROW1"
    storage = Counted(body)
    try:
        file = OpenFile(storage, "a")
        rows = [ipc._rows(file, schema(), *block)[0] for block in ipc._blocks(file)]
    except (DataError, struct.error, IndexError):  # those that `Ipc.open` makes an error of the file of
        rows = []
    assert all(-(1 << 63) <= count < 1 << 63 for count in rows)  # `Table` refuses what cannot be
    assert storage.taken <= 3 * len(body) + 100
    if thorough and data[0] & WHOLE == 0 and data[1:] == messages()[1]:
        assert rows == [3, 5]
