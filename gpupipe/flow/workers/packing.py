"""packing: the columns of an element as plain bytes, and back; structures and errors as JSON text. Nothing is pickled.

What crosses between a chain and its worker processes is written here. A column is `bytes`, a NumPy scalar, an array of
booleans or numbers, an object array of `bytes`, or a `Ragged` of such arrays; anything else is refused.
"""

from __future__ import annotations

import builtins
import importlib
import json
import struct
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import errors
from ...errors import ENDING, DataError, FunctionError, text_of
from ...ragged import Ragged
from ...spec import ABSENT, LEAF, Structure

__all__ = [
    "RemoteError",
    "RemoteTraceback",
    "error_of",
    "error_text",
    "pack",
    "packed_size",
    "structure_of",
    "structure_text",
    "unpack",
    "write",
]

_COUNT = struct.Struct("<I")


_COLUMN = struct.Struct("<BBBBQ")
"""Kind, whether an array may be written to, number of dimensions, length of the dtype's name, bytes of data."""


_BYTES, _SCALAR, _ARRAY, _STRINGS, _RAGGED = range(5)


_LONGEST_TEXT = 1 << 16
"""Characters of an error's text or traceback that are handed on."""


class RemoteTraceback(Exception):
    """Stands below an exception of a worker process: its text is the traceback there."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class RemoteError(Exception):
    """An exception of a worker process whose own class cannot be made here; its text begins with the class's name."""


def pack(columns: Sequence[Any]) -> list[Any]:
    """The bytes of some columns, in pieces that `write` puts side by side.

    Raises:
        FunctionError: a column is none of the kinds named above.
    """
    pieces: list[Any] = [_COUNT.pack(len(columns))]
    for column in columns:
        pieces += _packed(column)
    return pieces


def _packed(column: Any) -> list[Any]:
    if isinstance(column, (bytes, memoryview)):
        data = memoryview(column).cast("B") if len(column) else b""
        return [_COLUMN.pack(_BYTES, 0, 0, 0, len(data)), data]
    if isinstance(column, Ragged):
        return [_COLUMN.pack(_RAGGED, 0, 0, 0, 0), *_packed(column.row_splits), *_packed(column.values)]
    dtype = getattr(column, "dtype", None)
    if not isinstance(dtype, np.dtype) or not isinstance(column, (np.ndarray, np.generic)):
        raise FunctionError(f"workers='process' carries arrays, numbers and bytes, got {type(column).__name__}")
    if dtype.kind in "biuf":
        name = dtype.str.encode()
        if isinstance(column, np.generic):
            data = column.tobytes()
            return [_COLUMN.pack(_SCALAR, 0, 0, len(name), len(data)), name, data]
        flat = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
        head = _COLUMN.pack(_ARRAY, column.flags.writeable, column.ndim, len(name), flat.nbytes)
        return [head, name, struct.pack(f"<{column.ndim}Q", *column.shape), flat.data if flat.nbytes else b""]
    if dtype.kind == "O" and all(isinstance(item, bytes) for item in column.flat):
        items = list(column.flat)
        sizes = struct.pack(f"<{len(items)}Q", *map(len, items))
        head = _COLUMN.pack(_STRINGS, column.flags.writeable, column.ndim, 0, len(sizes) + sum(map(len, items)))
        return [head, struct.pack(f"<{column.ndim}Q", *column.shape), sizes, *items]
    raise FunctionError(f"workers='process' carries booleans, numbers and bytes, got an array of {dtype}")


def packed_size(pieces: Sequence[Any]) -> int:
    """How many bytes `write` writes."""
    return sum(map(len, pieces))


def write(pieces: Sequence[Any], buffer: memoryview) -> None:
    """Write packed columns at the start of a buffer that has room for them."""
    at = 0
    for piece in pieces:
        buffer[at : at + len(piece)] = piece
        at += len(piece)


def unpack(buffer: memoryview) -> tuple[Any, ...]:
    """The columns that were packed into a buffer; they share no memory with it."""
    (count,) = _COUNT.unpack_from(buffer, 0)
    at = _COUNT.size
    columns = []
    for _ in range(count):
        column, at = _next(buffer, at)
        columns.append(column)
    return tuple(columns)


def _next(buffer: memoryview, at: int) -> tuple[Any, int]:
    """The column that begins at a place, and where it ends."""
    kind, writable, ndim, name_size, size = _COLUMN.unpack_from(buffer, at)
    at += _COLUMN.size
    if kind == _RAGGED:
        splits, at = _next(buffer, at)
        values, at = _next(buffer, at)
        return Ragged(values, splits), at
    dtype = np.dtype(str(buffer[at : at + name_size], "ascii")) if name_size else None
    at += name_size
    shape = struct.unpack_from(f"<{ndim}Q", buffer, at)
    at += 8 * ndim
    return _unpacked(kind, dtype, shape, bool(writable), buffer[at : at + size]), at + size


def _unpacked(kind: int, dtype: Any, shape: tuple[int, ...], writable: bool, data: memoryview) -> Any:
    if kind == _BYTES:
        return bytes(data)
    if kind == _SCALAR:
        return np.frombuffer(bytes(data), dtype)[0]
    if kind == _ARRAY:
        out = np.empty(shape, dtype)
        if out.nbytes:
            out.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    else:
        out = np.empty(shape, object)
        sizes = struct.unpack_from(f"<{out.size}Q", data, 0)
        at = 8 * out.size
        flat = out.reshape(-1)
        for i, size in enumerate(sizes):
            flat[i] = bytes(data[at : at + size])
            at += size
    out.flags.writeable = writable
    return out


def structure_text(structure: Structure) -> str:
    """A structure as JSON; classes go by module and name.

    Raises:
        FunctionError: a key is no text, number, bytes or tuple of these, or a class is not at the top of its module.
    """
    return json.dumps(_structure(structure))


def _structure(structure: Structure) -> Any:
    kind = structure.kind
    if kind is None or kind is type(None):
        return 0 if kind is None else 1
    children = [_structure(child) for child in structure.children]
    keys = [_key(key) for key in structure.keys]
    if kind is tuple or kind is dict:
        return [kind.__name__, "", keys, children]
    if "<locals>" in kind.__qualname__:
        raise FunctionError(f"workers='process' needs element classes at the top of a module, got {kind.__qualname__}")
    return [kind.__qualname__, kind.__module__, keys, children]


def _key(key: Any) -> Any:
    if key is None or type(key) in (str, int, float, bool):
        return key
    if type(key) is bytes:
        return {"bytes": key.hex()}
    if type(key) is tuple:
        return {"tuple": [_key(part) for part in key]}
    raise FunctionError(f"workers='process' needs dicts with keys that are text or numbers, got {key!r}")


def structure_of(text: str) -> Structure:
    """The structure that `structure_text` wrote."""
    return _structure_of(json.loads(text))


def _structure_of(given: Any) -> Structure:
    if given in (0, 1):
        return LEAF if given == 0 else ABSENT
    name, module, keys, below = given
    children = tuple(_structure_of(child) for child in below)
    kind: Any = {"tuple": tuple, "dict": dict}.get(name) if not module else _class(module, name)
    return Structure(kind, tuple(_key_of(key) for key in keys), children, sum(child.count for child in children))


def _class(module: str, name: str) -> Any:
    # A worker process knows the main module by another name.
    found: Any = importlib.import_module("__main__" if module == "__mp_main__" else module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _key_of(key: Any) -> Any:
    if isinstance(key, dict):
        return bytes.fromhex(key["bytes"]) if "bytes" in key else tuple(_key_of(part) for part in key["tuple"])
    return key


def error_text(error: DataError) -> str:
    """A data error and its cause as JSON."""
    cause = error.__cause__
    given: dict[str, Any] = {
        "kind": type(error).__name__,
        "reason": error.reason[:_LONGEST_TEXT],
        "file": error.file,
        "offset": error.offset,
        "stage": error.stage,
        "unit": error.unit,
        "rows": list(error.rows),
        "reasons": [reason[:_LONGEST_TEXT] for reason in error.reasons],
    }
    if cause is not None:
        lines = traceback.format_exception(type(cause), cause, cause.__traceback__)
        given["cause"] = type(cause).__name__
        given["module"] = type(cause).__module__
        given["args"] = [arg for arg in cause.args if arg is None or isinstance(arg, (str, int, float))]
        given["complete"] = len(given["args"]) == len(cause.args)
        given["text"] = text_of(cause)[:_LONGEST_TEXT]
        given["traceback"] = "".join(lines)[-_LONGEST_TEXT:]
    return json.dumps(given)


def error_of(text: str) -> DataError:
    """The data error that `error_text` wrote.

    Its cause has the class it had there if that is one of Python's own or of gpupipe's, else `RemoteError`; below that
    stands the traceback of the worker as text.
    """
    given = json.loads(text)
    kind = getattr(errors, given["kind"], FunctionError)
    place = {name: given[name] for name in ("file", "offset", "stage", "unit")}
    error: DataError = kind(given["reason"], **place)
    if given["rows"]:
        error.rows, error.reasons = tuple(given["rows"]), tuple(given["reasons"])
    if "cause" in given:
        error.__cause__ = cause = _cause(given)
        cause.__cause__ = RemoteTraceback(given["traceback"])
    return error


def _cause(given: dict[str, Any]) -> BaseException:
    home = {"builtins": builtins, errors.__name__: errors}.get(given["module"])
    known = getattr(home, given["cause"], None)
    if given["complete"] and isinstance(known, type) and issubclass(known, (Exception, *ENDING)):
        try:
            made: BaseException = known(*given["args"])
        except Exception:  # e.g. UnicodeDecodeError wants arguments that are no text: its name and text must do
            return RemoteError(given["text"])
        return made
    return RemoteError(given["text"])
