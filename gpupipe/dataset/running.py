"""running: the methods of `Dataset` for options, facts, reports and iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from ..arguments import integer
from ..errors import PlanError, PlanTypeError
from ..options import Options
from ..plan.index import ENDLESS, Select, Sliced, blocker, why_not
from ..plan.node import INFINITE, UNKNOWN_CARDINALITY
from ..plan.order import WithOptions, never_ends, options_of
from ..plan.ranks import in_this_process, unchecked
from .base import Chain, new
from .epochs import Counted

if TYPE_CHECKING:
    from .. import Dataset
    from ..load.iterator import DatasetIterator
    from ..load.progress import Numbers
    from ..optimize.report.checks import Finding
    from ..optimize.report.explain import Explanation
    from ..optimize.report.memory import MemoryReport
    from ..profile.report import Profile

__all__ = ["Running"]


class Running(Chain):
    """Options, facts, reports and iteration."""

    def with_options(self, options: Options) -> Dataset:
        """Set options. They are merged along the chain; of several values for one option the last wins."""
        if not isinstance(options, Options):
            raise PlanTypeError(f"with_options needs gpupipe.Options, got {type(options).__name__}")
        return self._then(WithOptions(self.plan, options))

    def options(self) -> Options:
        """The merged options of the chain."""
        return options_of(self.plan)

    @property
    def element_spec(self) -> Any:
        """The type of an element, a structure of `TensorSpec`. Reads no data."""
        return self.plan.element.nested

    def cardinality(self) -> int:
        """The number of elements, `INFINITE_CARDINALITY` (-1) or `UNKNOWN_CARDINALITY` (-2). Reads no data."""
        return self.plan.cardinality

    def _length(self) -> int:
        """The cardinality; where it depends on the contents of files, their headers are counted."""
        count = self.plan.cardinality
        if count != UNKNOWN_CARDINALITY:
            return count
        from ..optimize.lower.length import length

        return length(self.plan, self.options().resolve())

    def __len__(self) -> int:
        """The number of elements. Record files without an index are indexed, in a pass over their headers.

        Bad elements, such as damaged records, count. A file that cannot be read to its end (it is missing, may not be
        opened, or a read fails or takes longer than `Options.read_timeout` in all of six tries) is an error whatever
        `Options.on_error` says, as the number of its records is unknown. With ``lost_files="skip"`` the records before
        the failure count, and the log says so.

        Raises:
            LengthError: a file that cannot be read to its end, unless `Options.lost_files` is "skip"; names the file.
            TypeError: the dataset is infinite, or its length is unknown until all elements are read.
            PlanError: there are 2**63 or more elements, which Python's `len` cannot return.
        """
        count = self._length()
        if count == INFINITE:
            raise PlanTypeError("the dataset is infinite: it has no len(); take(n) gives the first n elements")
        if count == UNKNOWN_CARDINALITY and never_ends(self.plan):
            raise PlanTypeError("the dataset is infinite or empty, which is unknown before it is read: it has no len()")
        if count == UNKNOWN_CARDINALITY:
            raise PlanTypeError(
                "the length of the dataset is unknown before it is read: it has no len(); sum(1 for _ in ds) counts "
                "the elements, ds.assert_cardinality(n) says how many there are"
            )
        if count >= 2**63:
            raise PlanError(f"len() needs fewer than 2**63 elements, got {count}; use cardinality()")
        return count

    @overload
    def __getitem__(self, key: slice) -> Dataset: ...

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        """The element at an index, as iterating gives it; for a slice, a dataset of such elements.

        It belongs to the epoch that `epoch(n)` or the last `set_epoch(n)` says, else to epoch 0.

        Record files are indexed once, by their headers. Bad elements count: reading one raises its error, whatever
        `Options.on_error` says, and so does a batch with a bad row. A single index needs all files to be counted, as
        `len` does.

        Args:
            key: an integer, negative from the end, or a Python slice.

        Raises:
            TypeError: a step cannot be indexed; names the step.
            PlanError: a slice of batches under ``on_error="skip"``, when it starts: write `skip` and `take`.
            IndexError: the index is out of range.
            DataError: the element is bad. A LengthError: a file cannot be read to its end, see `len`.
        """
        step = blocker(self.plan)
        if step is not None:
            raise PlanTypeError(f"ds[...] needs steps that can be indexed, and {why_not(step)}")
        if isinstance(key, slice):
            return self._then(Select(self.plan, self._sliced(key)))
        index = integer("ds[...]", "the index", key)
        count = self._length()
        endless = count == INFINITE
        count = ENDLESS if endless else count
        if not -count <= index < count or (endless and index < 0):
            of = "an infinite dataset: indices are 0 to 2**62 - 1" if endless else f"a dataset of {count} elements"
            raise IndexError(f"index {index} of {of}")
        if index % count >= ENDLESS:
            raise PlanError(f"ds[...] needs indices below 2**62, got {index} of {count} elements")
        from ..load.iterator import DatasetIterator
        from ..load.progress import Epochs

        epoch = self._epoch
        if epoch is None:
            epoch = self._visits.epoch(self._counter, self.plan, count)
        order = Sliced(index % count, 1, 1)
        settings = replace(self.options().resolve(), on_error="raise")
        with DatasetIterator(Select(self.plan, order), settings, Epochs(range(epoch, epoch + 1))) as items:
            for element in items:
                return element
        raise IndexError(f"index {index} of the dataset is gone: its files have changed")

    def _sliced(self, key: slice) -> Sliced:
        """A slice as indices that do not depend on the length, which is computed only where it is needed."""
        start, stop, step = (
            None if part is None else integer("ds[...]", "a slice", part) for part in (key.start, key.stop, key.step)
        )
        step = 1 if step is None else step
        if step == 0:
            raise PlanError("ds[...] needs a slice with a step other than 0")
        if step > 0 and (start or 0) >= 0 and (stop is None or stop >= 0):
            start = start or 0
            return Sliced(start, step, None if stop is None else len(range(start, stop, step)))
        count = self._length()
        if count == INFINITE:
            raise PlanTypeError("ds[...] of an infinite dataset needs indices from the start")
        if count >= ENDLESS:
            raise PlanError(f"ds[...] of 2**62 and more elements needs indices from the start, got {count} elements")
        indices = range(count)[slice(start, stop, step)]
        return Sliced(indices.start, step, len(indices))

    def explain(self) -> Explanation:
        """Describe the chain and how it will run: stages, devices, fused ops, buffers. Reads no data."""
        from ..optimize.report.explain import explain

        return explain(self.plan, self.options().resolve())

    def check(self) -> tuple[Finding, ...]:
        """Look for slips: repeat before shuffle, a mean for 0..1 on bytes, {CHW} taken for {HWC}, ... Runs nothing.

        The code of Python functions is inspected for random draws and image work. On a GPU, a step that copies images
        to the host is a finding, too.

        Each finding has the user's line and says what to write instead; `explain()` shows them, too. A finding is not
        an error: the chain may be what you want.
        """
        from ..optimize.report.checks import check

        return check(self.plan, self.options().resolve())

    def memory_report(self) -> MemoryReport:
        """The memory that the buffers of the chain may hold, by step, from the specs, and that full caches do hold.

        Reads no data. `iterator.memory_report()` says what they hold at that moment; only it counts datasets that a
        function makes inside `flat_map` or `interleave`.
        """
        from ..optimize.report.memory import memory_report

        return memory_report(self.plan, self.options().resolve())

    def profile(
        self,
        steps: int = 100,
        *,
        warmup: int = 10,
        consumer: Callable[[Any], Any] | float | None = None,
        seconds: float = 60.0,
    ) -> Profile:
        """Run a loop over the chain and measure every step: what limits the rate, and what would raise it.

        The loop is over one epoch, that of `first()`, and does not count as one. What measuring costs is measured, too,
        and subtracted. The time of a step is work: CPU time, storage, a Python function that sleeps; not that it waits
        for another thread.

        Args:
            steps: elements to measure; fewer if the chain ends or `seconds` are over. Shares of a handful say little.
            warmup: elements before them, so that buffers are full and pipelines are built.
            consumer: what the loop does with an element: a function, e.g. a training step, or the seconds that one
                takes. By default nothing: then the profile says what limits the chain by itself.
            seconds: after which the measurement ends.

        Raises:
            PlanError: an argument is out of range, or the chain has no element after the warm-up.
        """
        from ..profile.measure import consumer_of, measure
        from ..profile.report import profile_of

        steps, warmup = integer("profile", "steps", steps, 1), integer("profile", "warmup", warmup, 0)
        consume = consumer_of(consumer)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float | np.number) or not seconds > 0:
            raise PlanError(f"profile needs seconds > 0, got {seconds!r}")
        settings = self.options().resolve()
        return profile_of(measure(self.plan, settings, self._peeked_epoch(), steps, warmup, seconds, consume))

    def _peeked_epoch(self) -> int:
        """The epoch of what looks at a dataset without counting as a loop."""
        if self._epoch is not None:
            return self._epoch
        return (self._requested_epoch() or (0, 0))[1]

    def _requested_epoch(self) -> tuple[int, int] | None:
        """The last `set_epoch` call that concerns this dataset: its number among all such calls, and the epoch."""
        return self._counter.requested(self.plan)

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def iterator(self, epoch: int | None = None) -> DatasetIterator:
        """Make an iterator over one epoch.

        Args:
            epoch: the number that random ops and shuffles draw with, >= 0. By default iterators over equal chains of
                one source are counted: 0 for the first loop, 1 for the second. See `set_epoch`.

        Raises:
            PlanError: the epoch is negative, or differs from that of `epoch(n)`.
        """
        from ..load.iterator import DatasetIterator

        return DatasetIterator(self.plan, self.options().resolve(), self._numbered("iterator", epoch))

    def progress(self, epoch: int | None = None) -> DatasetIterator:
        """Make an iterator that shows its progress: elements, rows per second, the share that the loop waited for data.

        One line on stderr that is rewritten in place, after two seconds and on a terminal only. In a bar of tqdm write
        ``bar.set_postfix_str(items.stats().summary)``.

        Args:
            epoch: as in `iterator`.

        Example:
            >>> from gpupipe import Dataset
            >>> int(sum(x for x in Dataset.range(5).progress()))
            10
        """
        from ..load.shown import ShownIterator

        return ShownIterator(self.plan, self.options().resolve(), self._numbered("progress", epoch))

    def epochs(self, count: int, start: int = 0) -> DatasetIterator:
        """Make one iterator over `count` epochs, numbered from `start`."""
        count, start = integer("epochs", "count", count, 0), integer("epochs", "start", start, 0)
        self._refuse_epoch("epochs")
        from ..load.iterator import DatasetIterator
        from ..load.progress import Epochs

        return DatasetIterator(self.plan, self.options().resolve(), Epochs(range(start, start + count)))

    def epoch(self, epoch: int) -> Dataset:
        """Fix the epoch: every iterator over the result, every `[i]` and `first()` draws as in that epoch.

        Steps may follow. Inputs of `zip` and the like, and datasets that a function of `flat_map` makes, must not have
        a fixed epoch.

        Args:
            epoch: a number >= 0.

        Example:
            >>> from gpupipe import ALL, Dataset
            >>> ds = Dataset.range(9).shuffle(ALL)
            >>> [ds.epoch(3)[i] for i in range(9)] == list(ds.iterator(epoch=3))
            True
        """
        from .. import Dataset

        return Dataset(self.plan, self._counter, integer("epoch", "epoch", epoch, 0))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterator, from which later ones count on, and of `ds[i]`.

        The call applies to this dataset and to all that extend it, made before or after the call. PyTorch's samplers
        have this method: loops that call it before each epoch need no other change, and one that restarts at epoch 30
        draws what it would have drawn there. `iterator(epoch=)` sets the epoch of one iterator.

        Args:
            epoch: a number >= 0.

        Example:
            >>> from gpupipe import Dataset
            >>> ds = Dataset.range(9).shuffle(9)
            >>> ds.set_epoch(30)
            >>> list(ds.batch(3).unbatch()) == list(ds.iterator(epoch=30))
            True
        """
        number = integer("set_epoch", "epoch", epoch, 0)
        self._refuse_epoch("set_epoch")
        self._counter.set(self.plan, number)

    def _numbered(self, who: str, epoch: int | None = None) -> Numbers:
        """The numbers of the epochs of an iterator: one that is given, or counted when it starts.

        Args:
            who: the method that makes the iterator.
            epoch: the number, if one was asked for.
        """
        from ..load.progress import Epochs

        if epoch is not None:
            number = integer(who, "epoch", epoch, 0)
            if self._epoch not in (None, number):
                raise PlanError(f"{who} needs epoch {self._epoch}, that of epoch({self._epoch}), got {number}")
        else:
            if self._epoch is None:
                return Counted(self._counter, self.plan, self.options().resolve())
            number = self._epoch
        return Epochs(range(number, number + 1))

    def first(self) -> Any:
        """Return the first element, in the epoch that `epoch(n)` or the last `set_epoch(n)` says, else in epoch 0.

        This does not count as an epoch, so use it to look at an element before training. It waits for no other rank,
        and starts no workers on Ray.

        Raises:
            IndexError: the dataset is empty.
        """
        with new(unchecked(in_this_process(self.plan))).iterator(epoch=self._peeked_epoch()) as items:
            for element in items:
                return element
        raise IndexError("the dataset is empty: it has no first element")
