"""streams: an order that is computed, and in which one of several ranks reads few files.

The parts of the input (its files) come in a random order, one after the other; what that gives is cut into streams of
equal length, and each stream is shuffled window by window. Element i of the order is one of stream i % streams, so a
rank that takes every W-th element stays in streams / W of them, where W divides their number.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from ...graph.op import Array
from ...random import hash64, mix64
from ..access import groups
from .permutation import SMALL, Permutation

__all__ = ["StreamOrder"]

LEAST, MOST = 64 << 10, 64 << 20
"""Bytes of the orders of windows that are kept: twice those that the last call used, within these bounds."""

LARGEST = 1 << 60
"""Elements of the windows of all streams: more than there are, and within 64 bits."""

_OF_A_KEY = 2000
"""About as many bytes has the order of a window that is computed instead of stored."""


class StreamOrder:
    """A bijection of range(n), decided by a 64-bit key and the sizes of the parts.

    With N elements, C streams and windows of K: the parts, in the order ``Permutation(parts, key of the parts)``, form
    a line of N elements. Stream c has ``N // C`` of them, one more if ``c < N % C``, and stands behind stream c - 1.
    Element i is number ``j = i // C`` of stream ``c = i % C``. Window w of stream c has those of its elements
    whose numbers are in ``range(w * K - s, (w + 1) * K - s)`` with ``s = K * c // C``: not all streams begin a window
    at the same time, as all ranks would ask for their next ranges of files at once. Within its window an element is at
    the place that ``Permutation(elements of the window, key of c and w)`` gives.

    Args:
        sizes: elements of each part: int64[parts].
        streams: how many there are, >= 1.
        window: elements of a window, >= 1; more than ``LARGEST // streams`` are as many.
        key: decides the order.
    """

    def __init__(self, sizes: Array, streams: int, window: int, key: int) -> None:
        order = Permutation(len(sizes), mix64(key, hash64("parts")))(np.arange(len(sizes)))
        sizes = sizes.astype(np.int64)
        self._ends = np.cumsum(sizes[order])
        self._shift = (np.cumsum(sizes) - sizes)[order] - (self._ends - sizes[order])
        self.size = int(sizes.sum())
        self._streams, self._key = streams, key
        self._window = min(window, max(1, LARGEST // streams))
        self._windows: OrderedDict[tuple[int, int], Permutation] = OrderedDict()
        self._held = 0

    @property
    def nbytes(self) -> int:
        """Bytes that the order takes: 16 for each part, and the orders of windows in use."""
        return int(self._ends.nbytes + self._shift.nbytes) + self._held

    def parts_of(self, stream: int) -> int:
        """Return from how many parts the elements of a stream come."""
        each, more = divmod(self.size, self._streams)
        start = stream * each + min(stream, more)
        stop = start + each + (stream < more)
        if start == stop:
            return 0
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        return int(np.count_nonzero(np.diff(self._ends, prepend=0)[first : last + 1]))

    def __call__(self, indices: Array) -> Array:
        """Map indices in the new order to indices in the input: int64[N] -> int64[N]."""
        each, more = divmod(self.size, self._streams)
        stream, number = indices % self._streams, indices // self._streams
        shift = self._window * stream // self._streams
        window = (number + shift) // self._window
        start = np.maximum(window * self._window - shift, 0)
        line = stream * each + np.minimum(stream, more) + start
        used = 0
        for key, own in groups(window * self._streams + stream):
            w, c = divmod(key, self._streams)
            first = int(start[own[0]])
            count = min((w + 1) * self._window - self._window * c // self._streams, each + (c < more)) - first
            line[own] += self._order(c, w, count)(number[own] - first)
            used += _bytes_of(count)
        self._drop(min(max(LEAST, 2 * used), MOST))
        found: Array = line + self._shift[np.searchsorted(self._ends, line, side="right")]
        return found

    def _order(self, stream: int, window: int, count: int) -> Permutation:
        key = stream, window
        found = self._windows.get(key)
        if found is not None:
            self._windows.move_to_end(key)
            return found
        found = self._windows[key] = Permutation(count, mix64(mix64(self._key, stream), window))
        self._held += _bytes_of(count)
        return found

    def _drop(self, limit: int) -> None:
        while self._held > limit:
            _, gone = self._windows.popitem(last=False)
            self._held -= _bytes_of(gone.n)


def _bytes_of(count: int) -> int:
    return 8 * count if count <= SMALL else _OF_A_KEY
