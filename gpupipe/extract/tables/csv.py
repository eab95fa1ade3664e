"""csv: the records of CSV files, read as lines; a quoted value may hold ends of lines."""

from __future__ import annotations

from collections import deque
from typing import Any

from gpupipe.errors import DataError, ParseError
from gpupipe.extract.records.lines import LineReader
from gpupipe.extract.records.reading import Item, Source
from gpupipe.extract.tables.csv_layout import CsvLayout, OpenQuoteError, QuoteError

from ...classes import dataclass

__all__ = ["LONGEST", "CsvReader"]

LONGEST = 1 << 20
"""Bytes of a record of several lines: without a limit, one missing quote would take the rest of the file."""


@dataclass(eq=False, repr=False, kw_only=True)
class CsvReader(LineReader):
    """Iterates over (offset, values) of the records of one file; a record that cannot be read is (offset, DataError).

    A record with a quote that has no end within `LONGEST` bytes is one error, and continues with the line after it.

    Args:
        path: a local file, or a URL.
        layout: says how a record is read.
    """

    layout: CsvLayout

    def source(self) -> Source:
        return _Records(self, super().source())


class _Records:
    def __init__(self, reader: CsvReader, lines: Source) -> None:
        self._reader = reader
        self._lines = lines
        self._open: list[tuple[int, bytes]] = []  # lines of a record that has not ended yet
        self._size = 0  # their bytes
        self._odd = False  # their number of quotes is odd, so the record cannot end here

    def block(self) -> list[Any]:
        out: list[Any] = []
        while not out:
            lines = self._lines.block()
            queue = deque(lines)
            self._take(queue, out)
            if not lines:
                while self._open:
                    self._give_up(queue, out)
                    self._take(queue, out)
                break
        return out

    def _take(self, queue: deque[Item], out: list[Any]) -> None:
        while queue:
            at, line = queue.popleft()
            if isinstance(line, DataError):
                if self._open:
                    queue.appendleft((at, line))
                    self._give_up(queue, out)
                else:
                    out.append((at, line))
                continue
            text = bytes(line)
            self._open.append((at, text))
            self._size += len(text)
            if len(self._open) > 1:
                self._odd ^= text.count(b'"') % 2 == 1
            if len(self._open) > 1 and self._odd:
                if self._size > LONGEST:
                    self._give_up(queue, out)
                continue
            self._add(queue, out)

    def _add(self, queue: deque[Item], out: list[Any]) -> None:
        """Read the record of the open lines; keep them where it has not ended."""
        first = self._open[0][0]
        try:
            value: Any = self._reader.layout.values(self._joined())
        except OpenQuoteError:
            self._odd = True
            return
        except ParseError as error:
            if isinstance(error, QuoteError) and len(self._open) > 1:
                self._give_up(queue, out)
                return
            value = self._located(error, first)
        self._open, self._size, self._odd = [], 0, False
        if first or not self._reader.layout.header:
            out.append((first, value))

    def _joined(self) -> bytes:
        parts = [self._open[0][1]]
        for (before, line), (at, after) in zip(self._open, self._open[1:], strict=False):
            parts += [b"\n" if at - before - len(line) == 1 else b"\r\n", after]
        return b"".join(parts)

    def _give_up(self, queue: deque[Item], out: list[Any]) -> None:
        """Take the first of the open lines for a bad record, and read the others again."""
        (first, _), *others = self._open
        self._open, self._size, self._odd = [], 0, False
        queue.extendleft(reversed(others))
        reason = f"a quoted value needs an end within {LONGEST} bytes, and a delimiter after it"
        out.append((first, self._located(ParseError(reason), first)))

    def _located(self, error: ParseError, at: int) -> DataError:
        return error.at(self._reader.path, at, "read", "offset").kept()
