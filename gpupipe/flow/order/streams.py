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

KEPT = 8 << 20
"""Bytes of the orders of windows that are kept."""

_OF_A_KEY = 2000
"""About as many bytes has the order of a window that is computed instead of stored."""


class StreamOrder:
    """A bijection of range(n), decided by a 64-bit key and the sizes of the parts.

    With N elements, C streams and windows of K: the parts, in the order ``Permutation(parts, key of the parts)``, form
    a line of N elements. Stream c has ``N // C`` of them, one more if ``c < N % C``, and stands behind stream c - 1.
    Element i is number ``j = i // C`` of stream ``c = i % C``; there it is in window ``w = j // K``, at the place that
    ``Permutation(elements of the window, key of c and w)`` gives for ``j % K``.

    Args:
        sizes: elements of each part: int64[parts].
        streams: how many there are, >= 1.
        window: elements of a window, >= 1.
        key: decides the order.
    """

    def __init__(self, sizes: Array, streams: int, window: int, key: int) -> None:
        order = Permutation(len(sizes), mix64(key, hash64("parts")))(np.arange(len(sizes)))
        sizes = sizes.astype(np.int64)
        self._ends = np.cumsum(sizes[order])
        self._shift = (np.cumsum(sizes) - sizes)[order] - (self._ends - sizes[order])
        self.size = int(sizes.sum())
        self._streams, self._window, self._key = streams, window, key
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
        window, within = number // self._window, number % self._window
        line = stream * each + np.minimum(stream, more) + window * self._window
        for key, own in groups(window * self._streams + stream):
            w, c = divmod(key, self._streams)
            count = min(self._window, each + (c < more) - w * self._window)
            line[own] += self._order(c, w, count)(within[own])
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
        while self._held > KEPT and len(self._windows) > 1:
            _, gone = self._windows.popitem(last=False)
            self._held -= _bytes_of(gone.n)
        return found


def _bytes_of(count: int) -> int:
    return 8 * count if count <= SMALL else _OF_A_KEY
