"""errors: every exception that gpupipe raises, and what it carries.

The tree::

    GpupipeError
    ├── PlanError (ValueError)          a chain that cannot mean anything; raised on the user's line
    │   ├── PlanTypeError (TypeError)   ... because an argument has the wrong type
    │   ├── PlanKeyError (KeyError)     ... because a dict of traced values has no such key
    │   ├── SpecError                   ... because an op was given a value it is not defined for
    │   └── TraceError (TypeError)      ... because a traced function needs a value that does not exist yet
    ├── MissingDependencyError (ImportError)   an optional package is needed; the text names the extra
    ├── DeviceError (RuntimeError)      the executor failed, not the data: a GPU, its driver or its memory
    │   └── PixelError                  a decoder gave other pixels than those of the image, without an error
    ├── ClosedError (RuntimeError)      an iterator was used after close(), or in a forked child
    ├── StateError (ValueError)         a state that belongs to another chain, other data or another version
    ├── TooManyBadError (RuntimeError)  more bad elements were left out than `Options.max_bad` allows
    └── DataError (RuntimeError)        one element could not be produced; names file, offset, stage and cause
        ├── RecordError                 framing: CRC, length, truncation; or a read that fails in all of six tries
        ├── ParseError                  a tf.train.Example lacks a feature or holds another type
        ├── DecodeError                 bytes that are no image, or a damaged one
        ├── ShapeError                  elements of one batch that do not stack
        ├── FunctionError               a user's function raised
        │   └── ResultError (ValueError)    ... or returned what its step has no use for
        ├── LengthError (TypeError)     a file cannot be read to its end, so nobody can count its records
        ├── MissingFileError (FileNotFoundError)
        └── DirectoryError (IsADirectoryError)

The grammar of a message is: who needs what, got what; what to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from .brief import fields_in_brief

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
    "RecordError",
    "ResultError",
    "ShapeError",
    "SpecError",
    "StateError",
    "TooManyBadError",
    "TraceError",
]


ENDING = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What a user's function raises to end the program: never the error of an element."""


def text_of(error: BaseException) -> str:
    """``Class: text`` of any exception, also of one whose text cannot be made."""
    try:
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError) and text.endswith(" is read-only"):  # as NumPy says it
            text += "; nothing may change the arrays of an element in place: copy it first, x = x.copy()"
        return text
    except Exception as failure:
        return f"{type(error).__name__} (its text cannot be made: {type(failure).__name__})"


def shown_name(name: str) -> str:
    """A file name as messages show it: line breaks, control characters and bytes that are no text are escaped.

    So a name can neither break a line of a log nor control a terminal, and a message can always be encoded.
    """
    return name if name.isprintable() else "".join(map(_shown_character, name))


def _shown_character(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # what `os.fsdecode` makes of a byte that is no text
        return f"\\x{ord(character) - 0xDC00:02x}"
    return ascii(character)[1:-1]


class GpupipeError(Exception):
    """The root of every exception gpupipe raises on purpose."""


class PlanError(GpupipeError, ValueError):
    """A chain or an argument that cannot mean anything."""


class PlanTypeError(PlanError, TypeError):
    """An argument of the wrong type."""


class PlanKeyError(PlanError, KeyError):
    """A traced function asked a dict, of the element or of parsed features, for a key that it does not have."""

    __str__ = Exception.__str__


class SpecError(PlanError):
    """An op was applied to a value whose shape, dtype or layout it is not defined for."""


class TraceError(PlanError, TypeError):
    """A traced function asked for a value that exists only while the pipeline runs."""


class MissingDependencyError(GpupipeError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class DeviceError(GpupipeError, RuntimeError):
    """A GPU, its driver or its memory failed while a batch was computed; the text says which GPU and what to do.

    Not a `DataError`: nothing is wrong with the data, and no `Options.on_error` leaves anything out because of it. The
    iterator is closed. After most CUDA errors the process cannot use the GPU any more.
    """


class PixelError(DeviceError):
    """A decoder gave other pixels than those of the image, without an error; the text says which image and which card.

    Raised whatever `Options.on_error` says, since it is not the image that is bad; `Options.wrong_pixels` can make it a
    warning in the log. The iterator is closed.
    """


class ClosedError(GpupipeError, RuntimeError):
    """An iterator was used after it was closed, or in a process forked from its owner.

    `next`, and so a loop, and `state_dict` raise it, also where another thread closes the iterator meanwhile. One that
    has come to its end is no such iterator.
    """


class StateError(GpupipeError, ValueError):
    """A state does not belong to this chain, its data or this version, or a chain has none."""


class TooManyBadError(GpupipeError, RuntimeError):
    """More bad elements were left out or replaced than `Options.max_bad` allows; the text counts their causes.

    No `DataError`: it is no element that is wrong, and no step may take it for one.
    """


@dataclass(frozen=True, slots=True)
class Place:
    """Where an element came from: a file and byte offset, or a stream and index."""

    file: str
    offset: int | None = None
    unit: str = "offset"

    def __str__(self) -> str:
        file = shown_name(self.file)
        return file if self.offset is None else f"{file} at {self.unit} {self.offset}"


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One bad element, as `iterator.errors` and the error manifest list it.

    Attributes:
        file: the file or stream it came from.
        offset: byte offset of the record in the file, or index in the stream; None where unknown.
        unit: what `offset` counts: "offset" (bytes of a file) or "index"; "file" where what the file has from that
            offset on is lost.
        key: its identity, 64 bits: what its random parameters depend on. It differs between the passes of a `repeat`.
        stage: the step that failed (``"read"``, ``"parse_single_example"``, ``"decode_jpeg"``, ...).
        reason: what was needed and what was found; the first 500 characters of it.
        action: what was done: "left out", "replaced" or "raised".
        epoch: of the iterator.
    """

    file: str
    offset: int | None
    unit: str
    key: int
    stage: str
    reason: str
    action: str
    epoch: int

    __repr__ = fields_in_brief


class DataError(GpupipeError, RuntimeError):
    """One element could not be produced.

    Attributes:
        reason: what was needed and what was found, without the place.
        file: the file or stream the element came from, None where unknown.
        offset: byte offset of the record in the file, or index in the stream; None where unknown.
        stage: the step that failed, as the user wrote it (``"read"``, ``"parse"``, ``"decode_jpeg"``, ...).
        rows: where one step works on a batch, the rows that it refuses; the others are good.
        reasons: the reason of each of these rows, where they have one of their own.
        lost: it is no element that is bad: the file cannot be read from here on, and nobody knows how many records
            that hides. It is raised whatever `Options.on_error` says, unless `Options.lost_files` is "skip".
        passing: trying again may help.
    """

    rows: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    lost: bool = False
    passing: bool = False

    def __init__(
        self, reason: str, *, file: str | None = None, offset: int | None = None, stage: str = "", unit: str = "offset"
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.file = file
        self.offset = offset
        self.stage = stage
        self.unit = unit

    def at(
        self, file: str | None = None, offset: int | None = None, stage: str = "", unit: str | None = None
    ) -> DataError:
        """Fill in whatever part of the place is not known yet; answer self. An empty name says nothing."""
        if self.file is None and file:
            self.file, self.offset = file, offset if self.offset is None else self.offset
            self.unit = unit or self.unit
        if not self.stage:
            self.stage = stage
        return self

    @classmethod
    def of_rows(cls, reasons: dict[int, str], *, stage: str = "") -> DataError:
        """One error for several rows of a batch, each with its own reason; it reads as that of the first."""
        error = cls(next(iter(reasons.values())), stage=stage)
        error.rows, error.reasons = tuple(reasons), tuple(reasons.values())
        return error

    def of_row(self, row: int) -> DataError:
        """The error of one of the rows: with its own reason, and a place of its own to fill in."""
        other = self.again()
        if self.reasons:
            other.reason = self.reasons[self.rows.index(row)]
            other.args = (other.reason,)
        other.rows, other.reasons = (), ()
        return other

    def hiding(self) -> DataError:
        """Say that it hides what its file has from here on, nobody knows how many records; answer self."""
        if not self.lost:
            self.lost = True
            self.reason += (
                "; its records cannot be counted from there on: mend the storage. This is raised under every on_error, "
                'unless Options(lost_files="skip") leaves the rest of such files out'
            )
            self.args = (self.reason,)
        return self

    def again(self) -> DataError:
        """An equal error, to be raised; the one that steps and caches keep never gets a traceback.

        It would hold the frames of whoever catches it, with them the iterator, whose threads then would never stop.
        """
        base = OSError if isinstance(self, OSError) else Exception  # whose memory it has; subclasses differ in __init__
        other: DataError = base.__new__(type(self), *self.args)
        other.args = self.args
        other.__dict__.update(self.__dict__)
        other.__cause__ = self.__cause__
        return other

    def kept(self) -> DataError:
        """Forget the frames that it and its causes were raised in, for whoever keeps it; answer self.

        They hold the block that was being read, the open file and the state of a decompressor: a megabyte an error.
        """
        error: BaseException | None = self
        while error is not None:
            error.__traceback__ = error.__context__ = None
            error = error.__cause__
        return self

    def __str__(self) -> str:
        where = str(Place(self.file, self.offset, self.unit)) if self.file is not None else ""
        head = ": ".join(part for part in (where, self.stage) if part)
        return f"{head}: {self.reason}" if head else self.reason


class RecordError(DataError):
    """A record's framing is damaged: CRC, length or truncation. Or its file cannot be read there, for good."""


class ParseError(DataError):
    """A tf.train.Example that does not hold what the feature specification asks for."""


class DecodeError(DataError):
    """Bytes that are not an image, or an image that is damaged or too large."""


class ShapeError(DataError):
    """Elements of one batch whose shapes or dtypes differ."""


class FunctionError(DataError):
    """A user's function raised; the original exception is the cause."""


class ResultError(FunctionError, ValueError):
    """A user's function returned what its step has no use for: None, a set, a vector where a boolean is needed.

    The same mistake of a function that is traced is a `PlanError`, on the user's line; both are a ValueError.
    """

    __str__ = DataError.__str__


class LengthError(DataError, TypeError):
    """A file that cannot be read to its end: nobody can count its records. The cause is the error of the file.

    A TypeError, as of whatever has no `len()`: so `list(ds)`, which asks for a length to save work, goes on without.
    """


class MissingFileError(DataError, FileNotFoundError):
    """A file that was named does not exist."""

    __str__ = DataError.__str__


class DirectoryError(DataError, IsADirectoryError):
    """A file was expected, and a directory found."""

    __str__ = DataError.__str__
