"""longest: the most bytes that one record may have, and buffers of so many: lengths come from unchecked files."""

from __future__ import annotations

from gpupipe.errors import RecordError
from gpupipe.options import MAX_RECORD

from .waiting import LIMITS

__all__ = ["buffer_of", "longest", "too_long"]


def longest() -> int:
    """Bytes that a record may have in the run of this thread."""
    limits = LIMITS.get()
    return MAX_RECORD if limits is None or limits.longest is None else limits.longest


def too_long(file: str, offset: int, length: int, what: str = "a record") -> RecordError:
    """The error of a record that is longer than it may be.

    Args:
        file: it is in.
        offset: of the record.
        length: bytes that it says it has.
        what: it is.
    """
    return RecordError(
        f"{what} may have {longest()} bytes, this one says that it has {length}; if it has, set a larger "
        "Options.max_record",
        file=file,
        offset=offset,
        stage="read",
    )


def buffer_of(size: int, file: str, offset: int) -> memoryview:
    """Zeroed memory for so many bytes of a file.

    Raises:
        RecordError: there is not so much memory.
    """
    try:
        return memoryview(bytearray(size))
    except MemoryError as error:
        reason = f"needs {size} bytes of memory, which are not there"
        raise RecordError(reason, file=file, offset=offset, stage="read") from error
