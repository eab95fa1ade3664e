"""known_bad: records that a manifest says are bad become holes before anything reads, parses or decodes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...classes import dataclass
from ...errors import PLACES, BadRecord, DataError
from ...random import mix64
from ..access import RandomAccess, Through
from ..bad.found import LISTED, FoundBad, as_before, depth_of, found
from ..bad.records import KnownBad
from ..element import BatchStream, Element, Hole, Replacement
from ..run import SILENT_REPLAY, Context, Flow
from ..state.snapshot import State
from ..step import Running, Unseen

__all__ = ["KnownBadFlow"]


@dataclass(frozen=True, slots=True)
class KnownBadFlow:
    """Makes holes of the elements that `Options.bad_records` lists.

    It is placed right before a step that reads values, so a shuffle or a skip never waits for it. Its state is that of
    its input: a state saved without the option can be loaded with it, and vice versa. What is made again after a state
    is as it was then, whatever the manifest lists by now.
    """

    source: Flow
    unseen: ClassVar[bool] = True

    def open(self, at: Context, state: State = None) -> Running:
        step = mix64(LISTED, depth_of(self))  # there may be several
        inner = as_before(at, step, self.source.open(at, state))
        return Unseen(_checked(inner, at.run.bad.known, at.run.bad.found, step), inner)

    def access(self, at: Context) -> RandomAccess:
        return Through(self, at)


def _checked(inner: Iterator[Element], known: KnownBad, before: FoundBad, step: int) -> Iterator[Element]:
    """Look each element up: by offset in a file, or as a file."""
    keys = known.keys
    of_file: dict[int, BadRecord] = {}
    last = None
    for element in inner:
        value, stream, position = element
        if stream is not last:
            last, of_file = stream, known.of_file(stream.name) if stream.unit in PLACES else {}
        record = of_file.get(position) if of_file else None
        if record is None and keys and stream.unit not in PLACES and (key := mix64(stream.key, position)) in keys:
            record = known.of_element(stream.name, key)
        # A batch has the identity of its first row, a replacement that of the bad element.
        if record is None or isinstance(stream, (BatchStream, Replacement)):
            yield element
        elif type(value) is not tuple:  # a hole already
            value.known = True
            yield element
        elif SILENT_REPLAY.get() and before.exact:
            yield element
        else:
            error = DataError(record.reason, file=stream.name, offset=position, stage=record.stage, unit=stream.unit)
            hole = Hole(error, known=True)
            found(hole, stream, position, step)
            yield hole, stream, position
