"""buffer: what a buffer holds, as text: the places of records, or the numbers of elements in the input.

At most 16 bytes an element: integers of as many bytes as the largest of them needs, as base64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import DataError, StateError
from ...extract.records.reference import Reference, reference_at
from ..element import Element, Stream
from ..run import Context
from .snapshot import State, integers_json, these_integers

__all__ = ["Held", "held_json", "is_record"]


def held_json(entries: Sequence[tuple[Element | None, int]], begin: int) -> State:
    """Elements with their numbers in the input: records by file and offset, others by number, counted from `begin`.

    None stands for an element that is no record.
    """
    streams: dict[int, int] = {}
    table: list[Stream] = []
    which, offsets, slots, numbers = [], [], [], []
    for slot, (element, number) in enumerate(entries):
        if element is None or not is_record(element):
            slots.append(slot)
            numbers.append(number - begin)
            continue
        _, stream, position = element
        place = streams.get(id(stream))
        if place is None:
            place = streams[id(stream)] = len(table)
            table.append(stream)
        which.append(place)
        offsets.append(position)
    names = [stream.name for stream in table]
    common = shared_begin(names)
    return {
        "folder": common,
        "names": [name[len(common) :] for name in names],
        "keys": integers_json([stream.key for stream in table]),
        "alike": integers_json([stream.alike for stream in table]),
        "which": integers_json(which),
        "offsets": integers_json(offsets),
        "slots": integers_json(slots),
        "numbers": integers_json(numbers),
    }


def shared_begin(names: Sequence[str]) -> str:
    """The text that all names begin with, where there are several."""
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]


def is_record(element: Element) -> bool:
    """Whether an element is the reference to a record, and nothing else."""
    value, stream, position = element
    if type(value) is not tuple or len(value) != 1 or type(value[0]) is not Reference:
        return False
    return bool(value[0].offset == position and value[0].path == stream.name)


@dataclass(frozen=True, slots=True)
class Held:
    """What such a text says.

    Attributes:
        streams: of the records.
        records: the number of a stream and an offset, each.
        others: slot and number in the input of the elements that are no records.
    """

    streams: list[Stream]
    records: list[tuple[int, int]]
    others: dict[int, int]

    @classmethod
    def of(cls, state: State) -> Held:
        """Read it."""
        names = ("keys", "alike", "which", "offsets", "slots", "numbers")
        keys, alike, which, offsets, slots, numbers = (these_integers(state[name]) for name in names)
        parts = zip(keys, alike, state["names"], strict=True)
        streams = [Stream(key, state["folder"] + name, "offset", same) for key, same, name in parts]
        return cls(streams, list(zip(which, offsets, strict=True)), dict(zip(slots, numbers, strict=True)))

    def elements(self, others: dict[int, tuple[Element, int]], at: Context) -> list[tuple[Element, int]]:
        """The elements in their order; of each record 12 bytes are read.

        Args:
            others: by number, those that are no records.
            at: ends early if its run is stopped.

        Raises:
            StateError: a record is not there any more.
        """
        found: list[tuple[Element, int]] = []
        records = iter(self.records)
        for slot in range(len(self.records) + len(self.others)):
            number = self.others.get(slot)
            if number is not None:
                found.append(others[number])
                continue
            if at.run.stopped.is_set():
                break
            which, offset = next(records)
            stream = self.streams[which]
            try:
                reference = reference_at(stream.name, offset)
            except DataError as error:
                raise StateError(f"load_state_dict needs the files as they were: {error}") from error
            found.append((((reference,), stream, offset), -1))  # a record needs no number
        return found
