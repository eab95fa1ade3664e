"""prefetch: the step of `prefetch`."""

from __future__ import annotations

from ...classes import dataclass
from ...extract.images.decode import MOST_PIXELS
from ...extract.storage.waiting import LIMITS
from ...random import ROOT
from ...threads import Thread, join
from ..access import RandomAccess, access
from ..buffer_sizes import bytes_of
from ..element import Element
from ..run import SILENT_REPLAY, Context, Flow
from ..stall import SOMEWHERE, Where
from ..state.checkpoints import InputAhead
from ..state.snapshot import State, part
from ..step import Running
from ..tuning import Tuned
from .channel import Channel, Closed

__all__ = ["PrefetchFlow"]


@dataclass(frozen=True, slots=True)
class PrefetchFlow:
    """Elements made ahead by a thread, which starts when the first element is asked for.

    Attributes:
        source: the input.
        size: how many elements may wait.
        where: the step, for reports.
        tuned: whether their number may change while it runs, from `size` on.
    """

    source: Flow
    size: int
    where: Where = SOMEWHERE
    tuned: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        return _Prefetching(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        return access(self.source, at)


class _Prefetching(Running):
    runs_ahead = True

    def __init__(self, flow: PrefetchFlow, at: Context, state: State) -> None:
        gauge = at.run.counters.queue(flow.size, flow.where.step, flow.where.line)
        self._tuned: Tuned | None = None
        if flow.tuned and at.outer == ROOT:
            self._tuned = at.run.tuner.ahead(self, flow.where, flow.size, gauge)
        self._channel: Channel[Element] = Channel(self._tuned or flow.size, at.run.settings.host_memory, gauge)
        at.run.track_buffer(self._channel, flow.where.step)
        self._input = InputAhead(flow.source, at, part(state))
        self._run = at.run
        self._thread = Thread(_pump, (self._input, at, self._channel, self._tuned), name="gpupipe-prefetch")
        self._started = False
        self._again = self._input.items()  # in this thread, while elements are made again that were delivered before
        at.run.on_close(self.close)

    def ready(self) -> bool:
        """Whether the next element is there without waiting. Starts the thread."""
        if SILENT_REPLAY.get() and not self._started:
            return True
        self._start()
        return self._channel.ready()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()

    def __next__(self) -> Element:
        try:
            if self._started or not SILENT_REPLAY.get():
                self._start()
                element = self._channel.get()
            else:
                element = next(self._again)
        except Closed:
            self.close()
            raise StopIteration from None
        self._input.given += 1
        return element

    def snapshot(self) -> State:
        """Return the state of the input after the elements that were given."""
        return {"source": self._input.state()}

    def close(self, wait: bool = True) -> None:
        """Stop the thread, which closes the input."""
        self._channel.drop()
        if self._tuned is not None:
            self._tuned.users.discard(self)
        if wait:
            join([self._thread])
            if not self._started:
                self._input.close()
        self._run.forget(self.close)


def _pump(source: InputAhead, at: Context, channel: Channel[Element], tuned: Tuned | None) -> None:
    """Run the prefetch thread. It holds the channel, not the iterator, so that an abandoned iterator is collected."""
    MOST_PIXELS.set(at.run.settings.max_pixels)
    LIMITS.set(at.run.limits)
    try:
        for element in source.items():
            size = bytes_of(element)
            if tuned is not None and tuned.weigh:
                at.run.tuner.weighed(tuned, size)
            channel.put(element, size)
        channel.finish()
    except Closed:
        pass
    except BaseException as error:
        channel.fail(error)
    finally:
        source.close()
