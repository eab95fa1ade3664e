"""buffer: what a buffer holds, as text: the places of records, or the numbers of elements in the input.

At most 16 bytes an element: integers of as many bytes as the largest of them needs, as base64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import DataError, StateError
from ...extract.records.reference import Reference, reference_at
from ..element import Element, Stream
from ..run import Context
from .snapshot import State, decode_ints, encode_ints

__all__ = ["held_elements", "held_json", "is_record"]


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
        "keys": encode_ints([stream.key for stream in table]),
        "alike": encode_ints([stream.alike for stream in table]),
        "which": encode_ints(which),
        "offsets": encode_ints(offsets),
        "slots": encode_ints(slots),
        "numbers": encode_ints(numbers),
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


def held_elements(
    state: State, recover: Callable[[list[int]], dict[int, Element]], begin: int, at: Context
) -> list[tuple[Element, int]]:
    """The elements that such a text names, in their order, with their numbers; -1 for a record. None if it is stopped.

    Of each record 12 bytes are read.

    Args:
        state: the text.
        recover: gives the elements with some numbers.
        begin: the number that they are counted from.
        at: where the step is opened.

    Raises:
        StateError: a record is not there any more.
    """
    names = ("keys", "alike", "which", "offsets", "slots", "numbers")
    keys, alike, which, offsets, slots, numbers = (decode_ints(state[name]) for name in names)
    parts = zip(keys, alike, state["names"], strict=True)
    streams = [Stream(key, state["folder"] + name, "offset", same) for key, same, name in parts]
    others = {slot: begin + number for slot, number in zip(slots, numbers, strict=True)}
    again = recover(list(others.values()))
    records = zip(which, offsets, strict=True)
    found: list[tuple[Element, int]] = []
    for slot in range(len(which) + len(others)):
        if at.run.stopped.is_set():
            return []
        number = others.get(slot)
        if number is not None:
            found.append((again[number], number))
            continue
        stream_number, offset = next(records)
        stream = streams[stream_number]
        try:
            found.append((((reference_at(stream.name, offset),), stream, offset), -1))
        except DataError as error:
            raise StateError(f"load_state_dict needs the files as they were: {error}") from error
    return found
