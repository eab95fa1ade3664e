"""messages: the messages between a chain and its worker processes, and the elements in shared memory.

A message is `HEAD`, for some kinds followed by text. An element lies in shared memory: its columns in the format of
element files, then one byte per column, 1 if it is writable. Only settings and the function are pickled.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Sequence
from enum import IntEnum
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from ...errors import FunctionError, PlanError
from ...serial.columns import Cursor, add_columns, read_columns
from ...serial.structures import Malformed, structure_from_json, structure_to_json
from ...spec import Structure
from ..own_bytes import own_bytes

__all__ = ["HEAD", "Kind", "message", "pack", "read", "structure_of", "structure_text", "write"]

HEAD = struct.Struct("<BIQqQQ")
"""The start of a message: kind, slot, bytes, epoch, key of the stream, position. In an answer the last two are the
nanoseconds that the function took, by the clock and of CPU time."""


class Kind(IntEnum):
    """The kinds of messages, and the text that follows each of them."""

    RUN = 1  # to a worker: an element lies in this slot; the name of its segment follows
    GROWN = 2  # this slot has a larger segment, whose name follows
    SETTINGS = 3  # the settings of the next run follow
    READY = 11  # from a worker: it has started
    DONE = 12  # a result lies in this slot; its structure follows, if the parent compares it with the first one
    FAILED = 13  # an error follows
    GROW = 14  # a result needs a segment of so many bytes
    RAISED = 15  # the function ends the run, see `errors.ends_run`; its exception follows


def message(
    kind: Kind, slot: int = 0, size: int = 0, text: bytes = b"", epoch: int = 0, key: int = 0, position: int = 0
) -> bytes:
    """Build a message."""
    return HEAD.pack(kind, slot, size, epoch, key, position & (1 << 64) - 1) + text


def pack(columns: Sequence[Any]) -> tuple[list[Any], int]:
    """Serialize the columns of an element: pieces, and how many bytes they are in total.

    Raises:
        FunctionError: a column cannot be written.
    """
    pieces: list[Any] = []
    try:
        add_columns(columns, pieces, wide=True)
    except PlanError as error:
        raise FunctionError(str(error)) from None
    pieces.append(bytes([not isinstance(column, np.ndarray) or column.flags.writeable for column in columns]))
    return pieces, sum(map(len, pieces))


def write(pieces: Sequence[Any], segment: SharedMemory) -> None:
    """Write packed columns at the start of a segment, which is large enough."""
    offset, buffer = 0, segment.buf
    assert buffer is not None
    for piece in pieces:
        end = offset + len(piece)
        buffer[offset:end] = piece
        offset = end


def read(segment: SharedMemory, size: int) -> tuple[Any, ...]:
    """Read the columns in the first bytes of a segment; they share no memory with it."""
    assert segment.buf is not None
    with segment.buf[:size] as data:  # released before the segment is closed
        cursor = Cursor(data, wide=True)
        columns = own_bytes(read_columns(cursor))
        for column, writable in zip(columns, cursor.take(len(columns)), strict=True):
            if isinstance(column, np.ndarray):
                column.flags.writeable = bool(writable)
    return columns


def structure_text(structure: Structure) -> str:
    """Write a structure as JSON.

    Raises:
        FunctionError: a key of a dict cannot be written.
    """
    try:
        return json.dumps(structure_to_json(structure))
    except PlanError as error:
        raise FunctionError(str(error)) from None


def structure_of(text: str) -> Structure:
    """Read the structure that `structure_text` wrote.

    Raises:
        FunctionError: a class is not at the top of its module.
    """
    try:
        return structure_from_json(json.loads(text), _class)
    except Malformed as error:
        raise FunctionError(str(error)) from None


def _class(module: str, path: str, names: list[Any]) -> Any:
    if "<locals>" in path:
        raise Malformed(f"workers='process' needs element classes at the top level of a module, got {path}")
    # The main module has another name in a worker process.
    found: Any = importlib.import_module("__main__" if module == "__mp_main__" else module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
