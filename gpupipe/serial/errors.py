"""errors: the error of an element as JSON, for files, states and worker processes."""

from __future__ import annotations

import builtins
import traceback
from typing import Any

from .. import errors
from ..errors import ENDING, DataError, FunctionError, text_of, unit_of

__all__ = [
    "RemoteError",
    "RemoteTraceback",
    "error_class",
    "error_from_json",
    "error_to_json",
    "remote_from_json",
    "remote_to_json",
]

_LONGEST = 1 << 16
"""Characters of an error's text or traceback that a worker process sends."""


class RemoteTraceback(Exception):
    """The cause of an exception of a worker process, whose text is the traceback in that process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class RemoteError(Exception):
    """An exception of a worker process whose class cannot be made here; the text starts with the name of the class."""


def error_class(name: Any, unknown: type[DataError] = DataError) -> type[DataError]:
    """Return gpupipe's error class of a name, or `unknown` if there is none."""
    found = getattr(errors, str(name), None)
    return found if isinstance(found, type) and issubclass(found, DataError) else unknown


def error_to_json(error: DataError) -> dict[str, Any]:
    """Write an error, without its cause."""
    values = {name: getattr(error, name) for name in ("reason", "file", "offset", "stage", "unit")}
    return {"kind": type(error).__name__, **values}


def error_from_json(given: dict[str, Any], unknown: type[DataError] = DataError) -> DataError:
    """Read an error.

    Args:
        given: JSON, which may hold anything.
        unknown: the class for names that gpupipe does not have.
    """
    file, offset = given.get("file"), given.get("offset")
    return error_class(given.get("kind"), unknown)(
        str(given.get("reason")),
        file=file if isinstance(file, str) else None,
        offset=offset if type(offset) is int else None,
        stage=str(given.get("stage")),
        unit=unit_of(given.get("unit")),
    )


def remote_to_json(error: DataError) -> dict[str, Any]:
    """Write an error with its rows and its cause, for the process that started this one."""
    given = {**error_to_json(error), "reason": error.reason[:_LONGEST], "rows": error.rows}
    given["reasons"] = [reason[:_LONGEST] for reason in error.reasons]
    cause = error.__cause__
    if cause is not None:
        lines = traceback.format_exception(type(cause), cause, cause.__traceback__)
        given["cause"] = type(cause).__name__
        given["module"] = type(cause).__module__
        given["args"] = [arg for arg in cause.args if arg is None or isinstance(arg, (str, int, float))]
        given["complete"] = len(given["args"]) == len(cause.args)
        given["text"] = text_of(cause)[:_LONGEST]
        given["traceback"] = "".join(lines)[-_LONGEST:]
    return given


def remote_from_json(given: dict[str, Any]) -> DataError:
    """Read the JSON of `remote_to_json`.

    The cause has its own class if that is one of Python's or of gpupipe's, else `RemoteError`; its own cause is the
    traceback of the worker as text.
    """
    error = error_from_json(given, FunctionError)
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
        except Exception:  # e.g. UnicodeDecodeError needs bytes, which JSON cannot hold
            return RemoteError(given["text"])
        return made
    return RemoteError(given["text"])
