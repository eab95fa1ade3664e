"""csv_layout: one record of CSV, apart from the file it is in.

The rules are those of tf.data's CsvDataset: quotes enclose whole values, two stand for one, and an empty value is a
missing one, quoted or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpupipe.errors import ParseError

from ...classes import dataclass

__all__ = ["CsvLayout", "OpenQuoteError", "QuoteError"]

_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class CsvLayout:
    """How a record is read.

    Attributes:
        kinds: of the chosen columns: a dtype, or `bytes`.
        defaults: of the chosen columns: what a missing value is; None where one is required.
        select: the numbers of the chosen columns; None for all, of which there are as many as kinds.
        header: the first record of each file is left out.
        delimiter: one byte.
        quotes: whether quotes have a meaning.
        missing: a text that stands for a missing value, besides the empty one.
    """

    kinds: tuple[Any, ...]
    defaults: tuple[Any, ...]
    select: tuple[int, ...] | None = None
    header: bool = False
    delimiter: bytes = b","
    quotes: bool = True
    missing: bytes = b""

    def values(self, record: bytes) -> tuple[Any, ...]:
        """The values of a record.

        Raises:
            ParseError: a missing or surplus value, one of another type, or quotes in wrong places.
        """
        if self.select is None:
            chosen: Iterable[int] = range(len(self.kinds))
            fields, count = self.fields(record, len(self.kinds))
            if count != len(self.kinds):
                raise ParseError(f"a record of {len(self.kinds)} values is needed, got {count}")
        else:
            chosen = self.select
            fields, count = self.fields(record, self.select[-1] + 1)
            if self.select[-1] >= count:
                raise ParseError(f"a record of at least {self.select[-1] + 1} values is needed, got {count}")
        return tuple(
            [
                self._value(i, fields[i], kind, default)
                for i, kind, default in zip(chosen, self.kinds, self.defaults, strict=True)
            ]
        )

    def _value(self, i: int, field: bytes, kind: Any, default: Any) -> Any:
        if not field or field == self.missing:
            if default is None:
                raise ParseError(f"value {i} is required and missing; give its column a default in record_defaults")
            return default
        if kind is bytes:
            return field
        try:
            if b"_" in field:  # Python's own notation
                raise ValueError
            if kind.kind == "f":
                number = float(field)
                if abs(number) <= _FLOAT32:
                    return kind.type(number)
                with np.errstate(over="ignore"):  # infinite, as in TensorFlow
                    return kind.type(number)
            integer = int(field)
            limits = np.iinfo(kind)
            if not limits.min <= integer <= limits.max:
                raise ValueError
            return kind.type(integer)
        except ValueError:
            raise ParseError(f"value {i} of {kind} is needed, got {field[:40]!r}") from None

    def fields(self, record: bytes, most: int) -> tuple[list[bytes], int]:
        """The first values of a record as they are written, without quotes, at most `most`; and how many it has.

        Raises:
            OpenQuoteError: a quoted value has no end.
            QuoteError: quotes in wrong places.
        """
        if not self.quotes or b'"' not in record:
            found = record.split(self.delimiter, most)
            count = len(found)
            if count > most:  # what is not split takes little memory, whatever it has
                count += found.pop().count(self.delimiter)
            return found, count
        found, count, at = [], 0, 0
        while True:
            if record[at : at + 1] == b'"':
                value, at = _quoted(record, at + 1)
                if at < len(record) and record[at : at + 1] != self.delimiter:
                    raise QuoteError(f"a delimiter is needed after the quotes of value {count}")
            else:
                end = record.find(self.delimiter, at)
                value, at = (record[at:], len(record)) if end < 0 else (record[at:end], end)
                if b'"' in value:
                    raise QuoteError(f"quotes are needed around all of value {count}, got some inside")
            count += 1
            if count <= most:
                found.append(value)
            if at == len(record):
                return found, count
            at += 1


class QuoteError(ParseError):
    """Quotes in wrong places: where values begin and end is not known."""


class OpenQuoteError(QuoteError):
    """A record ends inside of a quoted value: it continues on the next line."""


def _quoted(record: bytes, at: int) -> tuple[bytes, int]:
    """The quoted value whose first byte is here, and the place after its last quote."""
    parts: list[bytes] = []
    while True:
        end = record.find(b'"', at)
        if end < 0:
            raise OpenQuoteError("a quoted value has no end")
        parts.append(record[at:end])
        if record[end + 1 : end + 2] != b'"':
            return b"".join(parts), end + 1
        parts.append(b'"')
        at = end + 2
