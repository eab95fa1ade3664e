"""loader: a dataset as training loops take it: a length, a new epoch for each loop, a position that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from ..errors import PlanError, PlanTypeError
from ..load.converted import ConvertedIterator, arrays_of
from ..load.progress import Numbers
from ..load.state import as_text
from ..optimize.lower.length import is_known
from ..options import Options
from ..plan.maps import AssertCardinality, PadToCardinality
from ..plan.node import Node, walk
from ..plan.order import never_ends
from ..ragged import RaggedSpec

__all__ = ["Chain", "Loader", "Passes", "has_length", "image_rank"]

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

    def epoch(self, epoch: int) -> Chain:
        """The same, of one epoch in every loop."""
        ...

    def _peeked_epoch(self) -> int:
        """The epoch that `set_epoch` said, or 0."""
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


def image_rank(chain: Chain) -> int:
    """The least rank of the leaves that are images, 0 if none is known to be: a `dtype` leaves other leaves alone.

    Where no leaf has a layout, images are what is ragged in two dimensions.
    """
    specs = [spec for spec in chain.plan.element.specs if spec.shape]
    images = [len(spec.shape or ()) for spec in specs if spec.layout]
    ragged = [len(spec.shape or ()) for spec in specs if isinstance(spec, RaggedSpec) and spec.ragged_rank > 1]
    return min(images or ragged, default=0)


def leaves_out(chain: Chain) -> bool:
    """Whether there may be fewer elements than their number says, as bad ones are left out."""
    return chain.options().resolve().on_error == "skip" and not any(
        isinstance(node, AssertCardinality | PadToCardinality) for node in walk(chain.plan)
    )


def has_length(chain: Chain) -> bool:
    """Whether a loader of a chain has a `len`; nothing is read."""
    return not leaves_out(chain) and not never_ends(chain.plan) and is_known(chain.plan)


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
        self._convert: Callable[[Any], Any] = arrays_of(who, convert)
        self._items: ConvertedIterator | None = None  # of the last loop; or of the next one:
        self._coming = False
        self._request: tuple[int, int] | None = None  # the `set_epoch` call that the last loop followed

    def __iter__(self) -> ConvertedIterator:
        """Start the next epoch, or continue the one of a loaded state."""
        items = self._next_loop()
        self._coming = False
        return items

    def __len__(self) -> int:
        """The number of elements of an epoch, also of one that is continued; see `Dataset.__len__`.

        Raises:
            TypeError: it is unknown: see `Dataset.__len__`; or bad elements are left out, so that there may be fewer.
        """
        if leaves_out(self.chain):
            raise PlanTypeError(
                f'{self._who} has no len() under on_error="skip": bad elements are left out, and a trainer would wait '
                "for them; ds.assert_cardinality(n) says how many are good, on_error='replace' keeps their number"
            )
        return len(self.chain)

    def _next_loop(self) -> ConvertedIterator:
        """The iterator of the next loop; nothing runs before its first `next`."""
        if self._items is None or not self._coming:
            self._items = self._new()
            self._coming = True
        return self._items

    def _new(self, epoch: int | None = None) -> ConvertedIterator:
        chain = self.chain
        self._request = chain._requested_epoch()
        return ConvertedIterator(
            chain.plan, chain.options().resolve(), chain._numbered(self._who, epoch), self._convert
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop, as `Dataset.set_epoch`; also of one that nothing was taken from.

        A loaded state of the last element of the epoch before is left: the next loop is this epoch as a whole. So is
        any state of that epoch where the number of elements is not known before they come.

        Raises:
            PlanError: the next loop continues another epoch, that of a loaded state.
        """
        items = self._items
        if items is None or not items.continues:
            self.chain.set_epoch(epoch)
            self._coming = False
            return
        coming = items.epoch
        if coming is not None and epoch == coming + 1 and items.may_be_over():
            items.leave_rest()
        elif epoch != coming:
            raise PlanError(f"set_epoch needs {coming}, the epoch that the loaded state continues, got {epoch!r}")

    def state_dict(self) -> dict[str, Any]:
        """The position of the last loop, after the last element that it gave, as JSON; before a loop, its start.

        Loaded at the end of an epoch it gives the next one as a whole. See `DatasetIterator.state_dict`. It is one text
        under one key, as libraries that load into what a new loader saves (torch.distributed.checkpoint) need it.
        """
        return as_text((self._items or self._next_loop()).state_dict())

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]], *, strict: bool | None = None) -> None:
        """Continue in the next loop where `state_dict` was called; the loops after it are the epochs after it.

        Args:
            state: of this loader, or those of all shards, see `DatasetIterator.load_state_dict`.
            strict: see there. Where a trainer loads the state, `Options(strict_states=False)` of the dataset says it.

        Raises:
            StateError: the state belongs to another chain, other files, options or another version.
        """
        self._coming = False
        items = self._next_loop()
        self._coming = False  # unless the state is good
        items.load_state_dict(state, strict=strict)
        self._coming = True

    def __getstate__(self) -> dict[str, Any]:
        """The loader without a loop that runs; a loaded state that no loop continues yet goes along."""
        items = self._items
        loaded = items.state_dict() if items is not None and items.continues else None
        return {**self.__dict__, "_items": None, "_coming": False, "_request": None, "_to_load": loaded}

    def __setstate__(self, state: dict[str, Any]) -> None:
        loaded = state.pop("_to_load")
        self.__dict__.update(state)
        if loaded is not None:
            self.load_state_dict(loaded)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.chain!r}>"


class Passes(Loader):
    """A loader for libraries that look at some elements before they iterate: a look is not an epoch.

    After a pass that was broken off within `LOOK` elements the next one is of the same epoch, unless these are all.
    """

    def _new(self, epoch: int | None = None) -> ConvertedIterator:
        last, request = self._items, self.chain._requested_epoch()
        whole = self.chain.cardinality()
        most = LOOK if whole < 0 else min(LOOK, whole - 1)
        if last is not None and request == self._request and last.was_look(most):
            epoch = last.epoch
        return super()._new(epoch)
