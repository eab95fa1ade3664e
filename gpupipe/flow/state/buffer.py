"""buffer: the elements in a buffer as text: records by file and offset, others by their numbers in the input.

At most 16 bytes an element: integers of as many bytes as the largest of them needs, as base64.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ...errors import DataError, StateError
from ...extract.records.reference import Reference, reference_at
from ..element import Element, Stream
from ..run import Context
from .snapshot import State, decode_ints, encode_ints

__all__ = ["held_elements", "held_json", "is_record"]


def held_json(entries: Sequence[tuple[Element | None, int]], start: int) -> State:
    """Write elements and their numbers: records by file and offset, others by number, counted from `start`.

    None stands for an element that is not a record.
    """
    streams: dict[int, int] = {}
    table: list[Stream] = []
    which, offsets, slots, numbers = [], [], [], []
    for slot, (element, number) in enumerate(entries):
        if element is None or not is_record(element):
            slots.append(slot)
            numbers.append(number - start)
            continue
        _, stream, offset = element
        row = streams.get(id(stream))
        if row is None:
            row = streams[id(stream)] = len(table)
            table.append(stream)
        which.append(row)
        offsets.append(offset)
    names = [stream.name for stream in table]
    # characters, not path components: also the start of a file name is stored once
    common = os.path.commonprefix(names) if len(names) > 1 else ""  # noqa: RUF071
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


def is_record(element: Element) -> bool:
    """Whether an element is a single reference to the record at its own position."""
    value, stream, position = element
    if type(value) is not tuple or len(value) != 1 or type(value[0]) is not Reference:
        return False
    return bool(value[0].offset == position and value[0].path == stream.name)


def held_elements(
    state: State, recover: Callable[[list[int]], dict[int, Element]], start: int, at: Context
) -> list[tuple[Element, int]]:
    """Read the elements that `held_json` wrote, with their numbers, -1 for a record. Empty if the run is stopped.

    Of each record 12 bytes are read.

    Args:
        state: what `held_json` returned.
        recover: takes numbers and returns their elements.
        start: the number that they are counted from.
        at: where the step is opened.

    Raises:
        StateError: a record is not there any more.
    """
    names = ("keys", "alike", "which", "offsets", "slots", "numbers")
    keys, alike, which, offsets, slots, numbers = (decode_ints(state[name]) for name in names)
    parts = zip(keys, alike, state["names"], strict=True)
    streams = [Stream(key, state["folder"] + name, "offset", same, at.scope) for key, same, name in parts]
    others = {slot: start + number for slot, number in zip(slots, numbers, strict=True)}
    recovered = recover(list(others.values()))
    records = zip(which, offsets, strict=True)
    found: list[tuple[Element, int]] = []
    for slot in range(len(which) + len(others)):
        if at.run.stopped.on:
            return []
        number = others.get(slot)
        if number is not None:
            found.append((recovered[number], number))
            continue
        stream_number, offset = next(records)
        stream = streams[stream_number]
        try:
            found.append((((reference_at(stream.name, offset),), stream, offset), -1))
        except DataError as error:
            raise StateError(f"load_state_dict needs the files as they were: {error}") from error
    return found
