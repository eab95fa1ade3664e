"""unique: the first occurrence of each value."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError
from ..bad.found import as_before, bad_element
from ..element import Element, locate
from ..run import Context, Flow
from ..state.snapshot import State, replayed
from ..step import Running

__all__ = ["UniqueFlow", "identity_of"]


@dataclass(frozen=True, slots=True)
class UniqueFlow:
    """The first occurrence of each value. Keeps 16 bytes, or the value itself, for each."""

    source: Flow

    def open(self, at: Context, state: State = None) -> Running:
        # The values seen may be large: a resume collects them again by replaying the elements.
        def items() -> Running:
            inner = as_before(at, self, self.source.open(at))
            return Running(self._first(inner, at), inner)

        return replayed(items, at, state)

    def _first(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        seen: set[Any] = set()
        for element in inner:
            if at.run.stopped.on:
                return
            value, stream, position = element
            if type(value) is tuple:
                try:
                    known = identity_of(value[0])
                except DataError as error:
                    bad = bad_element(locate(error, stream, position, "unique"), stream, position, self)
                    at.run.need(bad, "unique")
                    yield bad
                    continue
                if known in seen:
                    continue
                seen.add(known)
            else:
                at.run.need(element, "unique")
            yield element


def identity_of(leaf: Any) -> Any:
    """Return a small hashable value, equal for leaves of equal dtype, shape and values. Every NaN equals any other."""
    if isinstance(leaf, memoryview):
        leaf = bytes(leaf)
    if isinstance(leaf, bytes):
        return leaf if len(leaf) <= 32 else (len(leaf), _digest(leaf))
    if not isinstance(leaf, (np.ndarray, np.generic)):
        raise DataError(f"needs numbers, arrays or bytes, got {type(leaf).__name__}")
    array = np.asarray(leaf)
    if array.dtype == object:
        return array.shape, tuple(array.ravel().tolist())
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array + array.dtype.type(0))  # -0.0 is 0.0
    if array.ndim == 0:
        number = array.item()
        return "nan" if number != number else number
    return array.dtype.str, array.shape, _digest(np.ascontiguousarray(array).tobytes())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
