"""names: the files of a list as numbers that do not depend on the directory they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.urls import without_parameters

__all__ = ["Names"]

_Words = npt.NDArray[np.uint64]


class Names:
    """The stable names of listed files (see `patterns.stable_names`), and how often each was listed before.

    A name is hashed when it is first needed and its hash kept: hashing takes 0.4 us, as much as everything else that is
    done with an element of a list, and a list is read once an epoch.
    """

    __slots__ = ("_before", "_hashes", "_known", "_names", "_without")

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._without: tuple[tuple[str, ...], Names] | None = None
        self._before: _Words | None = None
        self._forget()
        if len(set(names)) < len(names):
            seen: dict[str, int] = {}
            self._before = np.zeros(len(names), np.uint64)
            for i, name in enumerate(names):
                self._before[i] = seen[name] = seen.get(name, -1) + 1

    def _forget(self) -> None:
        self._hashes: _Words = np.zeros(len(self._names), np.uint64)
        self._known = np.zeros(len(self._names), bool)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self._names == other._names

    def __hash__(self) -> int:
        return hash((len(self._names), *self._names[:1], *self._names[-1:]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def distinct(self) -> bool:
        """Whether no name comes twice."""
        return self._before is None

    def __getstate__(self) -> tuple[Any, ...]:
        return self._names, self._before

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._names, self._before = state
        self._without = None
        self._forget()

    def without(self, signing: tuple[str, ...]) -> Names:
        """These names without parameters of URLs that identify no file, as `urls.without_parameters` leaves them."""
        if not signing:
            return self
        if self._without is None or self._without[0] != signing:
            self._without = signing, Names([without_parameters(name, signing) for name in self._names])
        return self._without[1]

    def hashes(self, indices: npt.NDArray[np.int64]) -> _Words:
        """Return the hashes of some of the names, those of `random.hash64`, uint64[N]."""
        known = self._known[indices]
        if not known.all():
            new, names = indices[~known], self._names
            wanted: list[int] = new.tolist()
            texts = [names[i].encode(errors="surrogateescape") for i in wanted]
            digests = b"".join([blake2b(text, digest_size=8).digest() for text in texts])
            self._hashes[new] = np.frombuffer(digests, "<u8")
            self._known[new] = True  # after the hashes: another thread may be reading
        found: _Words = self._hashes[indices]
        return found

    def before(self, indices: npt.NDArray[np.int64]) -> _Words:
        """Count how often each of these names is listed before its index, uint64[N]."""
        return np.zeros(len(indices), np.uint64) if self._before is None else self._before[indices]
