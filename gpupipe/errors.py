"""errors: every exception that gpupipe raises, and what it carries.

The tree::

    GpupipeError
    ├── PlanError (ValueError)          a chain that cannot mean anything; raised on the user's line
    │   ├── PlanTypeError (TypeError)   ... because an argument has the wrong type
    │   ├── PlanKeyError (KeyError)     ... because a dict of traced values has no such key
    │   ├── SpecError                   ... because an op was given a value it is not defined for
    │   └── TraceError (TypeError)      ... because a traced function needs a value that does not exist yet
    ├── MissingDependencyError (ImportError)   an optional package is needed; the text says what installs it
    ├── DeviceError (RuntimeError)      the executor failed, not the data: a GPU, its driver or its memory
    │   └── PixelError                  a decoder returned wrong pixels without an error
    ├── ClosedError (RuntimeError)      an iterator was used after close(), or in a forked child
    ├── StateError (ValueError)         a state that belongs to another chain, other data or another version
    ├── RanksDisagreeError (RuntimeError)   ranks that train together are about to do different things
    ├── WorkersLostError (RuntimeError)     the Ray workers of `on_ray` died without an element in between
    │   └── WorkersDisagreeError        ... or have other files, functions or another version of gpupipe
    ├── TooManyBadError (RuntimeError)  more bad elements were left out than `Options.max_bad` allows
    └── DataError (RuntimeError)        one element could not be produced; names file, offset, stage and cause
        ├── RecordError                 framing: CRC, length, truncation; or a read that failed in all of six tries
        ├── ParseError                  a tf.train.Example lacks a feature or holds another type
        ├── DecodeError                 bytes that are not an image, or a damaged one
        ├── ShapeError                  elements of one batch that do not stack
        ├── FunctionError               a user's function raised
        │   └── ResultError (ValueError)    ... or returned a value that its step cannot use
        ├── LengthError (TypeError)     a file cannot be read to its end, so its records cannot be counted
        ├── MissingFileError (FileNotFoundError)
        └── DirectoryError (IsADirectoryError)

The grammar of a message is: who needs what, got what; what to do.
"""

from __future__ import annotations

import errno
import os
from typing import Literal, TypeAlias, TypeVar, get_args

from .brief import fields_in_brief
from .classes import dataclass
from .urls import cleaned, without_secrets

__all__ = [
    "BadRecord",
    "ClosedError",
    "DataError",
    "DecodeError",
    "DeviceError",
    "DirectoryError",
    "FunctionError",
    "GpupipeError",
    "LengthError",
    "MissingDependencyError",
    "MissingFileError",
    "ParseError",
    "PixelError",
    "PlanError",
    "PlanKeyError",
    "PlanTypeError",
    "RanksDisagreeError",
    "RecordError",
    "ResultError",
    "ShapeError",
    "SpecError",
    "StateError",
    "TooManyBadError",
    "TraceError",
    "WorkersDisagreeError",
    "WorkersLostError",
]


ENDING = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions of Python that end the program."""


class Terminated(SystemExit):
    """A signal ends the command, see `cli.main`: no code of the user's has ended itself."""


def ends_run(error: BaseException) -> bool:
    """Whether an exception out of a user's function ends the run, and is not the error of an element.

    So does every one that is no `Exception`, as a signal handler may raise its own; but asyncio's CancelledError ends a
    task.
    """
    return not isinstance(error, Exception) and type(error).__module__ != "asyncio.exceptions"


def text_of(error: BaseException) -> str:
    """``Class: text`` of any exception, even if its `__str__` fails."""
    try:
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError) and text.endswith(" is read-only"):  # NumPy's message
            text += "; the arrays of an element must not be changed in place: copy first, x = x.copy()"
        return text
    except Exception as failure:
        return f"{type(error).__name__} (its text cannot be made: {type(failure).__name__})"


def shown_name(name: str) -> str:
    """A name, of a file or a column, for messages: in one line, without the password and the query of a URL.

    Line breaks, control characters and bytes that are not text are escaped. So a name can neither break a log line nor
    control a terminal, and a message can always be encoded.
    """
    return _escaped(without_secrets(name))


def shown_line(text: str, url: str = "") -> str:
    """A sentence in one line, escaped as by `shown_name`; it may have URLs in it, and be that of another library.

    Args:
        text: the sentence.
        url: what was asked for, whose password and signature the text may have in some other form.
    """
    return _escaped(cleaned(text, url))


def shown_text(text: str) -> str:
    """A text of several lines, each as by `shown_line`."""
    return "\n".join(map(shown_line, text.split("\n")))


class Lines(str):
    """A text of several lines for an error, which gpupipe has put together of such as may be shown."""

    __slots__ = ()


def _shown_argument(arg: object) -> object:
    if isinstance(arg, Lines):
        return Lines(shown_text(arg))
    return shown_line(arg) if isinstance(arg, str) else arg


def shown_cause(error: BaseException, url: str = "") -> BaseException:
    """An exception of another library as the cause of one of ours, whose traceback shows its text.

    Where that text, or the text of one of its own causes, has to be changed to be shown (see `shown_line`), this is
    another exception with the changed text and the same frames, without causes. It is of the class of Python that the
    first one is derived from: a FileNotFoundError stays one. `url`: of what was asked for, see `cleaned`; an exception
    of the client's own holds the headers of its request, so it is always replaced by such a one.
    """
    shown = _with_causes(error)
    texts = [*map(text_of, shown), *(arg for one in shown for arg in one.args if isinstance(arg, str))]
    plain = not url or all(type(one).__module__ == "builtins" for one in shown)
    if plain and all(shown_line(cleaned(text, url)) == text for text in texts):
        return error
    text, kind = cleaned(texts[0], url), next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    if kind is type(error):
        text = text.partition(": ")[2]
    try:
        made: BaseException = kind(shown_line(text))
    except Exception:  # some classes need more than a text
        made = Exception(shown_line(text))
    return made.with_traceback(error.__traceback__)


_Caused = TypeVar("_Caused", bound="GpupipeError")


def caused(made: _Caused, error: BaseException, url: str = "") -> _Caused:
    """Give an error the cause that `shown_cause` makes; return it, to be raised.

    Raise it outside of ``except``: in there Python makes the exception itself reachable, as its `__context__`.
    """
    made.__cause__ = shown_cause(error, url)
    return made


def _with_causes(error: BaseException) -> list[BaseException]:
    """The exceptions that a traceback shows."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and not any(one is other for other in found):
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found


def io_reason(error: OSError) -> str:
    """Why the system refused to read or write, in words, without the file."""
    number = error.errno or 0
    own = error.strerror if number and error.strerror != os.strerror(number) else None
    return own or _IO_REASONS.get(number) or error.strerror or str(error)


_LONGEST = 4096
"""Characters of the reason of a data error."""

_IO_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
}


def _escaped(text: str) -> str:
    return text if text.isprintable() else "".join(map(_shown_character, text))


def _shown_character(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # `os.fsdecode` maps bytes that are not text there
        return f"\\x{ord(character) - 0xDC00:02x}"
    return ascii(character)[1:-1]


class GpupipeError(Exception):
    """The base of all exceptions that gpupipe raises on purpose.

    Their texts are what `shown_line` makes of them: names and the texts of libraries begin no line of their own.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*[_shown_argument(arg) for arg in args])


class PlanError(GpupipeError, ValueError):
    """A chain or an argument that is invalid, raised on the user's line."""


class PlanTypeError(PlanError, TypeError):
    """An argument of the wrong type."""


class PlanKeyError(PlanError, KeyError):
    """A traced function used a key that a dict, of the element or of parsed features, does not have."""

    __str__ = Exception.__str__


class SpecError(PlanError):
    """An op was applied to a value of a shape, dtype or layout for which it is not defined."""


class TraceError(PlanError, TypeError):
    """A traced function needed a value that exists only while the pipeline runs."""


class MissingDependencyError(GpupipeError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class DeviceError(GpupipeError, RuntimeError):
    """A GPU, its driver or its memory failed while a batch was computed; the text says which GPU and what to do.

    Not a `DataError`: the data is good, and `Options.on_error` never leaves anything out because of it. The iterator is
    closed. After most CUDA errors the process can no longer use the GPU.
    """


class PixelError(DeviceError):
    """A decoder returned wrong pixels without an error; the text says which image and which card.

    Raised whatever `Options.on_error` says, since the image is good; `Options.wrong_pixels` can turn it into a warning
    in the log. The iterator is closed.
    """


class ClosedError(GpupipeError, RuntimeError):
    """An iterator was used after it was closed, or in a process forked from its owner.

    `next` (and so a loop) and `state_dict` raise it, also when another thread closes the iterator meanwhile. Coming to
    its end does not close an iterator in this sense.
    """


class StateError(GpupipeError, ValueError):
    """A state does not belong to this chain, its data or this version, or the chain has no state."""


class RanksDisagreeError(GpupipeError, RuntimeError):
    """Ranks that train together are about to do different things; every rank raises it before its first step.

    The text names the rank that differs and the part: a seed, an epoch, a file. `next` compares again.
    """


class WorkersLostError(GpupipeError, RuntimeError):
    """The workers of `on_ray` died again and again without an element in between, or never started.

    The text has the last cause, as Ray tells it. `next` starts new workers and goes on behind the last element.
    """


class WorkersDisagreeError(WorkersLostError):
    """A worker of `on_ray` has other files, other code of a function, or another version of gpupipe than the trainer.

    The text names the node and the part.
    """


class TooManyBadError(GpupipeError, RuntimeError):
    """More bad elements were left out or replaced than `Options.max_bad` allows; the text counts their causes.

    Not a `DataError`: it is not the error of an element, and no step may treat it as one.
    """


PlaceInFile: TypeAlias = Literal["offset", "row", "key"]
"""What a position counts that says where in a file an element is: bytes, rows of a table, or keys by their hashes."""

Unit: TypeAlias = Literal[PlaceInFile, "index", "file"]
"""What a position counts; of a "file" the rest is lost from there on."""

UNITS: tuple[Unit, ...] = get_args(Unit)
PLACES: tuple[Unit, ...] = get_args(PlaceInFile)


def unit_of(given: object) -> Unit:
    """A unit that a file names; "index" for what is none."""
    found: Unit = "index"
    for unit in UNITS:
        if unit == given:
            found = unit
    return found


@dataclass(frozen=True, slots=True)
class Location:
    """Where an element came from: a file and byte offset, or a stream and index."""

    file: str
    offset: int | None = None
    unit: Unit = "offset"

    def __str__(self) -> str:
        file = shown_name(self.file)
        return file if self.offset is None else f"{file} at {self.unit} {self.offset}"


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One bad element, as `iterator.errors` and the error manifest list it.

    Attributes:
        file: the file or stream it came from; a URL without its secrets: ``https://user:***@host/path?…``.
        offset: byte offset of the record in the file, number of the row, or index in the stream; None where unknown.
        unit: what `offset` counts: "offset" (bytes of a file), "row" (of a table), "key" (of a database, by its
            hash) or "index"; "file" where the rest of the file from that offset is lost.
        key: its identity, 64 bits, on which its random parameters depend. It differs between the passes of a `repeat`.
        stage: the step that failed (``"read"``, ``"parse_single_example"``, ``"decode_jpeg"``, ...).
        reason: what was needed and what was found, in at most 500 characters.
        action: "left out", "replaced" or "raised".
        epoch: the iterator's epoch.
    """

    file: str
    offset: int | None
    unit: Unit
    key: int
    stage: str
    reason: str
    action: str
    epoch: int

    __repr__ = fields_in_brief


HIDES = "; its records cannot be counted from there on"
"""What `DataError.hiding` adds to a reason starts with it: it is of no use where nothing is counted."""


class DataError(GpupipeError, RuntimeError):
    """One element could not be produced.

    Attributes:
        reason: what was needed and what was found, in one line, without file and offset.
        file: the file or stream the element came from, a URL without its secrets; None where unknown.
        offset: byte offset of the record in the file, or index in the stream; None where unknown.
        stage: the step that failed, as the user wrote it (``"read"``, ``"parse"``, ``"decode_jpeg"``, ...).
        rows: where a step works on a batch, the bad rows; the others are good.
        reasons: the reason of each bad row, where they differ.
        lost: the file cannot be read from here on, and the number of records that this hides is unknown. The error is
            raised whatever `Options.on_error` says, unless `Options.lost_files` is "skip".
        passing: a retry may help.
    """

    rows: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    lost: bool = False
    passing: bool = False
    _file: str | None

    def __init__(
        self, reason: str, *, file: str | None = None, offset: int | None = None, stage: str = "", unit: Unit = "offset"
    ) -> None:
        if len(reason) > _LONGEST:  # a line of a file that is no number may have 64 MB
            reason = f"{reason[: _LONGEST - 5]} ..."
        reason = shown_line(reason)
        super().__init__(reason)
        self.reason = reason
        self.file = file
        self.offset = offset
        self.stage = stage
        self.unit: Unit = unit

    @property
    def file(self) -> str | None:
        """See the class."""
        return self._file

    @file.setter
    def file(self, name: str | None) -> None:
        self._file = None if name is None else without_secrets(name)

    def at(
        self, file: str | None = None, offset: int | None = None, stage: str = "", unit: Unit | None = None
    ) -> DataError:
        """Fill in the parts of the location that are still unknown; return self. An empty name is unknown."""
        if self.file is None and file:
            self.file, self.offset = file, offset if self.offset is None else self.offset
            self.unit = unit or self.unit
        if not self.stage:
            self.stage = stage
        return self

    @classmethod
    def of_rows(cls, reasons: dict[int, str], *, stage: str = "") -> DataError:
        """Make one error for several rows of a batch, each with its own reason; its text is that of the first."""
        error = cls(next(iter(reasons.values())), stage=stage)
        error.rows, error.reasons = tuple(reasons), tuple(map(shown_line, reasons.values()))
        return error

    def of_row(self, row: int) -> DataError:
        """The error of one of the rows: with its own reason, and its own location to fill in."""
        other = self.again()
        if self.reasons:
            other.reason = self.reasons[self.rows.index(row)]
            other.args = (other.reason,)
        other.rows, other.reasons = (), ()
        return other

    def hiding(self) -> DataError:
        """Mark the rest of the file as lost, with an unknown number of records; return self."""
        if not self.lost:
            self.lost = True
            self.reason += (
                f"{HIDES}: fix the storage. This is raised under every on_error, "
                'unless Options(lost_files="skip") leaves the rest of such files out'
            )
            self.args = (self.reason,)
        return self

    def again(self) -> DataError:
        """An equal error, to be raised; the one that steps and caches keep never gets a traceback.

        A traceback would hold the caller's frames, and with them the iterator, whose threads would never stop.
        """
        base = OSError if isinstance(self, OSError) else Exception  # decides the memory layout; __init__ differs
        other: DataError = base.__new__(type(self), *self.args)
        other.args = self.args
        other.__dict__.update(self.__dict__)
        other.__cause__ = self.__cause__
        return other

    def bare(self) -> DataError:
        """A copy without its causes, as a state keeps it: of any number of errors no frame is kept."""
        other = self.again()
        other.__cause__ = None
        return other

    def kept(self) -> DataError:
        """Drop the frames of this error and its causes, so that it can be kept; return self.

        They hold the block that was being read, the open file and the state of a decompressor: a megabyte an error.
        """
        error: BaseException | None = self
        while error is not None:
            error.__traceback__ = error.__context__ = None
            error = error.__cause__
        return self

    def __str__(self) -> str:
        where = str(Location(self.file, self.offset, self.unit)) if self.file is not None else ""
        head = ": ".join(part for part in (where, self.stage) if part)
        return f"{head}: {self.reason}" if head else self.reason


class RecordError(DataError):
    """A record's framing is damaged (CRC, length, truncation), or its file cannot be read there."""


class ParseError(DataError):
    """A tf.train.Example that does not hold what the feature specification asks for."""


class DecodeError(DataError):
    """Bytes that are not an image, or an image that is damaged or too large."""


class ShapeError(DataError):
    """Elements of one batch whose shapes or dtypes differ."""


class FunctionError(DataError):
    """A user's function raised; the original exception is the cause."""


class ResultError(FunctionError, ValueError):
    """A user's function returned a value that its step cannot use: None, a set, a vector where a boolean is needed.

    In a traced function the same mistake is a `PlanError`, on the user's line; both are a ValueError.
    """

    __str__ = DataError.__str__


class LengthError(DataError, TypeError):
    """A file cannot be read to its end, so its records cannot be counted. The cause is the error of the file.

    A TypeError, as for any object without `len()`: so `list(ds)`, for which a length is only a hint, works without.
    """


class MissingFileError(DataError, FileNotFoundError):
    """A named file does not exist."""

    __str__ = DataError.__str__


class DirectoryError(DataError, IsADirectoryError):
    """A directory was found where a file was expected."""

    __str__ = DataError.__str__
