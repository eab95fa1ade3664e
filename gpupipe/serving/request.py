"""request: the chain of a preprocessor, lowered once for each kind of images and opened for each request."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from ..dataset.base import new
from ..errors import DataError, DeviceError, TooManyBadError
from ..extract.images.decode import MOST_PIXELS
from ..extract.storage.forking import renew_lock
from ..extract.storage.waiting import LIMITS
from ..flow.element import BatchStream, Element, Hole, Replacement
from ..flow.own_bytes import own_bytes
from ..flow.run import Context, Run
from ..flow.stage.direct import RowsFailed
from ..flow.step import close
from ..optimize.lower.compile import Lowered, lower_in
from ..options import Settings
from ..plan.node import ElementType
from ..plan.sources import Request
from ..spec import LEAF, TensorSpec
from .executors import WarmExecutors, closed

__all__ = ["Chain"]

ENDLESS = (1 << 31) - 1
"""Rows of a batch that ends with the request."""


class Chain:
    """A chain over the images of a request.

    Args:
        fn: the function of an image.
        settings: of the chain.
        batch_size: rows that an executor computes at once.

    Attributes:
        key: of the stream of images: that of `Dataset.from_list`, so that draws are equal.
        pid: the process that it belongs to.
    """

    def __init__(self, fn: Callable[..., Any], settings: Settings, batch_size: int) -> None:
        self._fn, self._settings = fn, settings
        self._run = Run(settings, executors=WarmExecutors(batch_size))
        self._lowered: dict[TensorSpec, Lowered] = {}
        self._lock = threading.RLock()
        renew_lock(self)
        self.key = Context(self._run).stream("slices", "images").key
        self.pid = os.getpid()

    def compute(self, elements: list[Element], spec: TensorSpec) -> tuple[Any, list[int], dict[int, DataError]]:
        """Compute the batch of some images. Sets variables of the context.

        Returns:
            The batch, None if every image is bad; the positions of the good images; the errors of the others.

        Raises:
            DataError: an image is bad, and `on_error` is "raise"; or the images do not make a batch.
        """
        self.check_open()
        MOST_PIXELS.set(self._settings.max_pixels)
        LIMITS.set(self._run.limits)
        lowered = self._lowered.get(spec) or self._lower(elements, spec)
        while True:
            run = _OfRequest.like(self._run)
            running = lowered.flow.open(Context(run, params=(elements,)))
            try:
                item = next(running, None)
            except RowsFailed as failed:
                elements = without(elements, failed)
                continue
            except (DeviceError, TooManyBadError, MemoryError):
                raise  # closing does not cause these
            except Exception:
                if self._run.stopped.on:  # what closing does to an executor at work
                    raise closed() from None
                raise
            finally:
                close(running)
            break
        self.check_open()
        if item is None:
            return None, [], run.errors
        value, stream, _ = item
        if type(value) is not tuple:
            run.note(item, "raised")
            raise value.error.again()
        assert lowered.element.structure is not None and isinstance(stream, BatchStream)
        kept = [position for row, position in stream.rows if type(row) is not Replacement]
        return lowered.element.structure.unflatten(own_bytes(value)), kept, run.errors

    def _lower(self, elements: list[Element], spec: TensorSpec) -> Lowered:
        """Lower the chain for one kind of images; the type of a Python function's results is that of its first."""
        with self._lock:
            found = self._lowered.get(spec)
            if found is not None:
                return found
            plan = new(Request(ElementType(LEAF, (spec,)))).map(self._fn).batch(ENDLESS).plan
            at = Context(self._run, params=(elements,))
            lowered = lower_in(plan, self._settings, at)
            if lowered.learned:  # lowered again: no pass over this request is kept in it
                lowered = lower_in(plan, self._settings, at, lowered.learned)
            if lowered.element.known:
                self._lowered[spec] = lowered
            return lowered

    def check_open(self) -> None:
        """Refuse to go on.

        Raises:
            ClosedError: it was closed.
        """
        if self._run.stopped.on:
            raise closed()

    def close(self, wait: bool = True) -> None:
        """End all threads."""
        if self.pid == os.getpid():
            self._run.close(wait)
            assert isinstance(self._run.executors, WarmExecutors)
            self._run.executors.close()


class _OfRequest(Run):
    """The run of a preprocessor as one request sees it.

    Attributes:
        errors: of the images that are left out or replaced, by position.
    """

    errors: dict[int, DataError]

    @classmethod
    def like(cls, run: Run) -> _OfRequest:
        """A run that shares everything with another one."""
        made = object.__new__(cls)
        made.__dict__.update(run.__dict__)
        made.errors = {}
        return made

    def leave_out(self, element: Element, verb: Any = None, always: bool = False, reported: bool = True) -> None:
        """Keep the error, too."""
        self.errors[element[2]] = element[0].error
        super().leave_out(element, verb, always, reported)


def without(elements: list[Element], failed: RowsFailed) -> list[Element]:
    """The elements of a request with the bad ones as holes.

    Raises:
        DataError: the bad ones are not among those that were good so far.
    """
    bad = {element[2]: error for element, error in failed.found}
    now = [(Hole(bad[item[2]]), *item[1:]) if item[2] in bad and type(item[0]) is tuple else item for item in elements]
    if all(type(a[0]) is type(b[0]) for a, b in zip(elements, now, strict=True)):
        raise failed.found[0][1]
    return now
