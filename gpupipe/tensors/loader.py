"""loader: a dataset as training loops take it: a length, a new epoch for each loop, a position that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from ..errors import PlanError
from ..load.converted import ConvertedIterator, arrays_of
from ..load.progress import Numbers
from ..options import Options
from ..plan.node import Node

__all__ = ["Chain", "Loader", "Passes"]

LOOK = 2
"""Elements that a library takes to see what they are like, before it iterates."""


class Chain(Protocol):
    """What a loader needs of a `Dataset`."""

    plan: Node

    def options(self) -> Options:
        """Its options."""
        ...

    def cardinality(self) -> int:
        """Its number of elements."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of its next loop."""
        ...

    def _requested_epoch(self) -> tuple[int, int] | None:
        """The last `set_epoch` call: its number and the epoch."""
        ...

    def shard(self, num_shards: int, index: int, *, even: Literal["drop", "wrap"] | None = None) -> Chain:
        """Every `num_shards`-th element."""
        ...

    def _numbered(self, who: str, epoch: int | None = None) -> Numbers:
        """The numbers of the epochs of an iterator."""
        ...

    def __len__(self) -> int: ...


class Loader:
    """A dataset in the tensors of a framework. Each loop over it is the next epoch, see gpupipe/dataset/EPOCHS.md.

    It has the methods that PyTorch's samplers and torchdata's StatefulDataLoader have, so trainers that save and
    restore their loaders do so with this one.

    Args:
        chain: the dataset.
        who: the method of `Dataset` that makes it.
        convert: a function of one leaf: an array, number or bytes.

    Attributes:
        chain: the dataset.
    """

    chain: Chain

    def __init__(self, chain: Chain, who: str, convert: Callable[[Any], Any]) -> None:
        self.chain = chain
        self._who = who
        self._convert = arrays_of(who, convert)
        self._items: ConvertedIterator | None = None  # of the last loop; or of the next one:
        self._coming = False
        self._loaded = False  # the next loop continues a loaded state

    def __iter__(self) -> ConvertedIterator:
        """Start the next epoch, or continue the one of a loaded state."""
        items = self._next_loop()
        self._coming = self._loaded = False
        return items

    def __len__(self) -> int:
        """The number of elements of an epoch, also of one that is continued; see `Dataset.__len__`."""
        return len(self.chain)

    def _next_loop(self) -> ConvertedIterator:
        """The iterator of the next loop; nothing runs before its first `next`."""
        if self._items is None or not self._coming:
            self._items = self._new()
            self._coming = True
        return self._items

    def _new(self, epoch: int | None = None) -> ConvertedIterator:
        chain = self.chain
        return ConvertedIterator(
            chain.plan, chain.options().resolve(), chain._numbered(self._who, epoch), self._convert
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop, as `Dataset.set_epoch`.

        Raises:
            PlanError: the next loop continues another epoch, that of a loaded state.
        """
        if not self._loaded:
            self.chain.set_epoch(epoch)
            self._coming = False
            return
        coming = self._next_loop().epoch
        if epoch != coming:
            raise PlanError(f"set_epoch needs {coming}, the epoch that the loaded state continues, got {epoch!r}")

    def state_dict(self) -> dict[str, Any]:
        """The position of the last loop, after the last element that it gave, as JSON; before a loop, its start.

        Loaded at the end of an epoch it gives the next one as a whole. See `DatasetIterator.state_dict`.
        """
        return (self._items or self._next_loop()).state_dict()

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Continue in the next loop where `state_dict` was called; the loops after it are the epochs after it.

        Args:
            state: of this loader, or those of all shards, see `DatasetIterator.load_state_dict`.

        Raises:
            StateError: the state belongs to another chain, other files, options or another version.
        """
        self._coming = False
        items = self._next_loop()
        self._coming = False  # unless the state is good
        items.load_state_dict(state)
        self._coming = self._loaded = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.chain!r}>"


class Passes(Loader):
    """A loader for libraries that look at some elements before they iterate: a look is not an epoch.

    After a pass that was broken off within `LOOK` elements the next one is of the same epoch, unless these are all.
    """

    _request: tuple[int, int] | None = None  # the `set_epoch` call that the last pass followed

    def _new(self, epoch: int | None = None) -> ConvertedIterator:
        last, request = self._items, self.chain._requested_epoch()
        whole = self.chain.cardinality()
        most = LOOK if whole < 0 else min(LOOK, whole - 1)
        if last is not None and request == self._request and last.was_look(most):
            epoch = last.epoch
        self._request = request
        return super()._new(epoch)
