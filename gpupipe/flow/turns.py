"""turns: the order of `interleave`, by place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..op import Array

__all__ = ["Turns"]


class Turns:
    """The order of `interleave` without running it: which dataset is at a place, and which of its elements.

    The places fall into stretches in which the same datasets take turns: at most a few for each dataset.

    Args:
        sizes: of the datasets.
        cycle: datasets that are open at a time.
        block: elements taken from each in turn.
    """

    def __init__(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        self._starts: list[int] = []
        self._widths: list[int] = []  # elements of one turn
        self._firsts: list[int] = []  # where the datasets of a stretch stand in `_who`
        self._who: list[int] = []
        self._from: list[int] = []
        self._blocks: list[int] = []  # elements that a dataset gives in one turn
        self.size = 0
        self._run(sizes, cycle, block)
        self._tables = [np.array(x, np.int64) for x in (self._starts, self._widths, self._firsts)]
        self._columns = [np.array(x, np.int64) for x in (self._who, self._from, self._blocks)]

    def _run(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        slots: list[list[int] | None] = [None] * cycle  # number and how many of its elements were taken
        left = iter(range(len(sizes)))
        more = True
        while more or any(slots):
            opened = [slot for slot in slots if slot is not None]
            full = 0
            if not (more and len(opened) < cycle) and opened:
                full = min((sizes[number] - taken) // block for number, taken in opened)
            if full:
                self._stretch(opened, block, full)
                for one in opened:
                    one[1] += full * block
                continue
            for at in range(cycle):
                slot = slots[at]
                if slot is None and more:
                    number = next(left, None)
                    more = number is not None
                    slot = None if number is None else [number, 0]
                if slot is None:
                    continue
                some = min(block, sizes[slot[0]] - slot[1])
                if some:
                    self._stretch([slot], some, 1)
                    slot[1] += some
                slots[at] = slot if some == block else None

    def _stretch(self, opened: Sequence[list[int]], block: int, turns: int) -> None:
        self._starts.append(self.size)
        self._widths.append(len(opened) * block)
        self._firsts.append(len(self._who))
        for number, taken in opened:
            self._who.append(number)
            self._from.append(taken)
            self._blocks.append(block)
        self.size += len(opened) * block * turns

    def __call__(self, places: Array) -> tuple[Array, Array]:
        """The numbers of the datasets at some places, and the places in them."""
        starts, widths, firsts = self._tables
        who, taken, blocks = self._columns
        stretch = np.searchsorted(starts, places, side="right") - 1
        turn, within = np.divmod(places - starts[stretch], widths[stretch])
        block = blocks[firsts[stretch]]
        slot, offset = np.divmod(within, block)
        entry = firsts[stretch] + slot
        return who[entry], taken[entry] + turn * block + offset
