"""handed: the rows of a dataset of another library that can only be iterated over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...classes import dataclass
from ...errors import DataError, RecordError, StateError
from ...extract.tables.huggingface import HuggingFaceStream
from ...extract.tables.reader import Part
from ...extract.tables.table import Block, is_mistake, misfit
from ...spec import TensorSpec
from ..element import Element
from ..run import Context
from ..state.snapshot import Numbers, State, corrupt_state, int_part
from ..step import Running, close
from .readers import element_of
from .rows import UNIT, elements

__all__ = ["HandedFlow"]


@dataclass(frozen=True, slots=True)
class HandedFlow:
    """The rows of a stream. A row is identified by its number.

    Attributes:
        form: reads them.
        names: of the columns that are read, in the order of the leaves.
        specs: of these columns.
        label: what the stream is called in messages.
    """

    form: HuggingFaceStream
    names: tuple[str, ...]
    specs: tuple[TensorSpec, ...]
    label: str

    def open(self, at: Context, state: State = None) -> Running:
        return _Rows(self, at, state)

    def block(self, table: Any) -> Block | DataError:
        """The columns of a table, or why all its rows are bad."""
        rows = self.form.rows(table, self.label, self.names)
        wrong = misfit(rows, self.names, self.specs)
        if wrong is not None:
            return RecordError(wrong, file=self.label, stage="read")
        try:
            return rows.read(0, self.names, self.specs)
        except DataError as error:
            return error.kept()


class _Rows(Running):
    """The state is the number of rows given and, if the library's own is exact, that before the present table."""

    def __init__(self, flow: HandedFlow, at: Context, state: State) -> None:
        done = 0 if state is None else int_part(state, "n")
        self._first = 0 if state is None else int_part(state, "first")  # row of the present table
        self._before = None if state is None else state.get("theirs")  # the library's state there
        if self._first > done:
            raise corrupt_state()
        self._flow, self._run = flow, at.run
        self._stream = at.stream("rows", flow.label, UNIT)
        self._resumes = flow.form.resumes
        self._made = self._elements(done)
        self._numbers = Numbers(self._made, done)
        self.items = self._numbers.items

    def _elements(self, done: int) -> Iterator[Element]:
        at, flow = self._first, self._flow
        tables = flow.form.tables(flow.names, self._before)
        try:
            for table, before in tables:
                if self._run.stopped.on:
                    return
                if self._resumes:
                    self._first, self._before = at, before
                start, at = max(at, done), at + table.num_rows
                if start < at:
                    yield from elements(Part(start, at, flow.block(table)), self._stream)
        except Exception as error:  # of the library: where it goes on is not known
            if is_mistake(error):
                raise
            reason = f"{type(error).__name__}: {error}"[:500]
            if at >= done:
                failure = RecordError(reason, file=flow.label, offset=at, stage="read", unit=UNIT)
                yield element_of((at, failure.hiding()), self._stream)
            at += 1
        finally:
            close(tables)
        if at < done and not self._run.stopped.on:
            raise StateError(
                f"load_state_dict needs the data that the state was taken over, got a stream that ends {done - at} "
                "rows before it"
            )

    def snapshot(self) -> State:
        return {"n": self._numbers.count, "first": self._first, "theirs": self._before}

    def close(self) -> None:
        close(self._made)
