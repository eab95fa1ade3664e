"""budget: the memory of large images that threads decode at the same time.

A file of some kilobytes may hold an image of `Options.max_pixels`, whose decoding takes 1 to 2 GB, and each thread
decodes one. So large images share a budget of the process, in bytes: who decodes one takes what it needs at its peak
(`peak_bytes`), and waits until that is free. Images below `LARGE` take no part: for them there is no lock, and they
are bounded by their size times the number of threads.

No wait is without an end. One image may always go, however large. A thread that holds some of the budget never waits
for more: a decode inside a decode, or a mask beside its image. Who waits is served in order, so a large image is not
overtaken forever. Where nothing was taken or given back for `PATIENCE` seconds (a holder waits for who waits), the
next one goes all the same. A wait ends with the run that it works for. What nobody gives back (Ctrl-C between two
lines) is free again when its `Share` is destroyed, and a forked child starts with a whole budget.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from time import monotonic
from typing import Any

from gpupipe.cpus import cpu_count
from gpupipe.extract.storage.waiting import LIMITS
from gpupipe.log import logger
from gpupipe.threads import Room

__all__ = ["BUDGET", "LARGE", "Budget", "Kept", "Share", "decoding", "hold", "kind_of", "let_go", "peak_bytes"]

LARGE = 256 << 20
"""Bytes that an image may take without asking: 33 megapixels of JPEG or PNG, 22 of WebP."""


LEAST = 1 << 30
"""Bytes of the budget, at least; on machines with more than 4 CPUs it is `LARGE` for each of them."""


PATIENCE = 60.0
"""Seconds without any change after which the next image goes although the budget is used up. On a machine with other
work one image of 144 megapixels took more than 10."""


_LOOK = 0.1
"""Seconds between two looks at whether the run was stopped, and whether a share was lost."""


_PER_PIXEL = {"webp": 12}
"""Bytes a pixel at the peak of decoding to 8 bits and of the op that follows, by format. libwebp holds two canvases of
4 bytes, and Pillow copies one."""


_OTHERS = 8
"""The same for all other formats: Pillow and the resizers copy 3 bytes to 4, and a progressive JPEG has 6 of
coefficients; libjpeg alone takes 3."""


_COPIES = 3
"""Of the samples that tifffile decodes: its parts, the image in the order of its pixels, and the op that follows."""


def peak_bytes(format: str, height: int, width: int, itemsize: int = 1, stored: int = 0) -> int:
    """The bytes that decoding an image takes at its peak, with the op that follows; above rather than below.

    Args:
        format: `ImageHeader.format`.
        height: in pixels.
        width: in pixels.
        itemsize: bytes of a sample of the result.
        stored: bytes of a pixel, where tifffile decodes it: of any number of channels.
    """
    return height * width * max(_PER_PIXEL.get(format, _OTHERS) + 4 * (itemsize - 1), _COPIES * stored)


def kind_of(data: Any) -> str:
    """The format of an encoded image by its first bytes, as far as `peak_bytes` tells formats apart."""
    first = bytes(data[:4])
    return "webp" if first == b"RIFF" else "jpeg" if first[:2] == b"\xff\xd8" else "another"


class Share:
    """What somebody holds of a budget, or waits for.

    Attributes:
        size: bytes.
    """

    __slots__ = ("__weakref__", "size")

    def __init__(self, size: int) -> None:
        self.size = size


class Budget:
    """Bytes that large images share.

    Args:
        most: how many; None for those of this machine.
        patience: seconds, see `PATIENCE`.
    """

    def __init__(self, most: int | None = None, patience: float = PATIENCE) -> None:
        self._most, self._patience = most, patience
        self.start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_forked, weakref.ref(self)))

    def start(self) -> None:
        """Begin with nothing held, also in a forked child: the threads that hold something do not exist there."""
        self._room = Room()
        self._held: weakref.WeakSet[Share] = weakref.WeakSet()
        self._waiting: list[weakref.ref[Share]] = []
        self._changed = monotonic()

    @property
    def most(self) -> int:
        """Bytes of the budget."""
        if self._most is None:
            self._most = max(LEAST, LARGE * cpu_count())
        return self._most

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return sum(share.size for share in self._held)

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiting)

    def take(self, size: int, wait: bool = True) -> Share:
        """Take some bytes, once they are free; alone, more than there are.

        Args:
            size: bytes.
            wait: False takes them at once, for who holds some already.

        Raises:
            RecordError: the run that this thread works for was stopped while it waited.
        """
        share = Share(size)
        with self._room:
            if not wait or (not self._waiting and self._has(size)):
                self._held.add(share)
                self._changed = monotonic()
                return share
            mine = weakref.ref(share)
            self._waiting.append(mine)
        room = self._room
        try:
            with room:
                while not self._served(share):
                    room.wait(_LOOK)
                    _check_runs()
            return share
        finally:
            with room:
                with contextlib.suppress(ValueError):  # it was served
                    self._waiting.remove(mine)
                room.notify_all()

    def give(self, share: Share) -> None:
        """Give a share back. Safe to call twice."""
        with self._room:
            self._held.discard(share)
            self._changed = monotonic()
            self._room.notify_all()

    def _has(self, size: int) -> bool:
        held = self.held
        return held == 0 or held + size <= self.most

    def _served(self, share: Share) -> bool:
        """Hand a share out if it is its turn. The lock is held."""
        while self._waiting and self._waiting[0]() is None:  # Ctrl-C ended its wait
            del self._waiting[0]
        if self._waiting[0]() is not share:
            return False
        if not self._has(share.size):
            if monotonic() - self._changed < self._patience:
                return False
            logger.info(
                "an image that needs %d bytes is decoded beside others that hold %d, more than the budget of %d bytes: "
                "none of them was done for %g s",
                share.size,
                self.held,
                self.most,
                self._patience,
            )
        self._held.add(share)
        del self._waiting[0]
        self._changed = monotonic()
        return True


def _forked(budget: weakref.ref[Budget]) -> None:
    if (here := budget()) is not None:
        here.start()


def _check_runs() -> None:
    """Check that the runs that this thread works for are not stopped.

    Raises:
        RecordError: one of them is.
    """
    limits = LIMITS.get()
    while limits is not None:
        limits.check("a large image")
        limits = limits.outer


BUDGET = Budget()
"""The budget of this process."""


class _Mine(threading.local):
    """What this thread holds, and who keeps it."""

    def __init__(self) -> None:
        self.shares: weakref.WeakSet[Share] = weakref.WeakSet()
        self.kept: Kept | None = None


_MINE = _Mine()


class Kept:
    """Keeps what this thread takes inside the block, until `release` or the end of the block.

    For who goes on working with decoded images: a thread that computes the rest of a row.

    Attributes:
        shares: what it keeps.
    """

    __slots__ = ("_outer", "shares")

    def __init__(self) -> None:
        self.shares: list[Share] = []
        self._outer: Kept | None = None

    def __enter__(self) -> Kept:
        self._outer, _MINE.kept = _MINE.kept, self
        return self

    def __exit__(self, *_: object) -> None:
        _MINE.kept, self._outer = self._outer, None
        if self.shares:
            self.release()

    def release(self) -> None:
        """Give back all that is kept."""
        shares, self.shares = self.shares, []
        for share in shares:
            let_go(share)


def hold(size: int) -> Share:
    """Take part of the process's budget for this thread, which waits unless it holds some already.

    Args:
        size: bytes, as of `peak_bytes`.

    Raises:
        RecordError: the run was stopped while this waited.
    """
    share = BUDGET.take(size, wait=not _MINE.shares)
    _MINE.shares.add(share)
    return share


def let_go(share: Share) -> None:
    """Give back what `hold` returned. Safe to call twice."""
    _MINE.shares.discard(share)
    _trim()
    BUDGET.give(share)


def _trim() -> None:
    """Give free memory back to the system: glibc keeps Pillow's blocks of 16 MiB, for each thread on its own."""
    if (trim := _trimmer()) is not None:
        trim(0)


@lru_cache(1)
def _trimmer() -> Callable[[int], int] | None:
    """The function of glibc; None where there is another C library."""
    import ctypes  # with large images only

    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError: Windows
        return None
    return trim


class _Decoding:
    """The block that `decoding` returns for a large image."""

    __slots__ = ("_share", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._share: Share | None = None

    def __enter__(self) -> None:
        share = hold(self._size)
        if _MINE.kept is None:
            self._share = share
        else:
            _MINE.kept.shares.append(share)

    def __exit__(self, *_: object) -> None:
        if self._share is None:
            _trim()  # before the ops that follow
        else:
            let_go(self._share)


_SMALL = contextlib.nullcontext()


def decoding(size: int) -> contextlib.AbstractContextManager[None]:
    """Hold part of the budget while a block decodes an image, and for as long as the `Kept` around it says.

    Args:
        size: bytes, as of `peak_bytes`; up to `LARGE` nothing is held.

    Raises:
        RecordError: at the start of the block: the run was stopped while this waited.
    """
    return _SMALL if size <= LARGE else _Decoding(size)
