"""progress: how far an iterator is, as counts; what a state says of them, checked as a whole before it is used."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..errors import StateError
from ..flow.state.snapshot import State, as_int, corrupt_state, to_json
from ..plan.node import ElementType, Node
from ..serial.structures import Malformed
from .reshard import begun, one_of, resharded, sharding
from .state import StateHeader, packed, sealed, types_from_json, types_to_json, unpacked

__all__ = ["Epochs", "Numbers", "Progress", "Resume", "Stand", "state_of"]

Stand = Literal["begin", "inside", "end"]
"""Where in its epoch an iterator stands: nothing was taken, something was, or it and all epochs are at their end."""


class Numbers(Protocol):
    """Where an iterator has the numbers of its epochs from."""

    def __call__(self, progress: Progress, first: int | None = None) -> Iterator[int]:
        """All of them, or those from one on that a state gives."""
        ...

    def after(self, progress: Progress, epoch: int) -> Iterator[int]:
        """Those after one that came to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Epochs:
    """Epochs that were numbered beforehand.

    Attributes:
        numbers: of all of them.
    """

    numbers: range

    def __call__(self, progress: Progress, first: int | None = None) -> Iterator[int]:
        """All of them, or those from one on.

        Raises:
            StateError: there is no such epoch.
        """
        if first is None:
            return iter(self.numbers)
        if first not in self.numbers:
            raise self._no_such_epoch(first)
        return iter(self.numbers[self.numbers.index(first) :])

    def after(self, progress: Progress, epoch: int) -> Iterator[int]:
        """Those after one that came to its end, none if it is the last.

        Raises:
            StateError: there is neither that one nor the next.
        """
        if epoch not in self.numbers and epoch + 1 not in self.numbers:
            raise self._no_such_epoch(epoch)
        return iter(number for number in self.numbers if number > epoch)

    def _no_such_epoch(self, epoch: int) -> StateError:
        numbers = self.numbers
        mine = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}" if numbers else "none"
        return StateError(
            f"load_state_dict needs a state of an epoch that this iterator has, {mine}, got epoch {epoch}; give the "
            "number of the state's epoch, or of the next one where that had come to its end"
        )


@dataclass(slots=True)
class Progress:
    """How far an iterator is.

    Attributes:
        epoch: the present one, the last one at the end; None before the first is known.
        delivered: elements so far, of all epochs.
        before: those of them that were delivered before this epoch, or before shards were shared out anew.
        left_out: bad elements that were left out or replaced before a state was loaded.
        noted: keys of bad elements of this epoch that were noted before a state was loaded, and how often.
        begin_at: elements of the whole in front of those that shards share anew; None unless they do.
        uneven: bad elements were left out before a state was loaded, so shards cannot be shared out anew.
        ended: the last epoch came to its end.
    """

    epoch: int | None = None
    delivered: int = 0
    before: int = 0
    left_out: int = 0
    noted: Counter[int] = field(default_factory=Counter)
    begin_at: int | None = None
    uneven: bool = False
    ended: bool = False

    @property
    def in_epoch(self) -> int:
        """Elements delivered in this epoch."""
        return self.delivered - self.before

    def enter(self, epoch: int) -> None:
        """Begin an epoch."""
        self.epoch, self.before = epoch, self.delivered
        self.noted, self.begin_at, self.uneven = Counter(), None, False

    def shard_of(self, plan: Node, even: bool) -> State:
        """Which shard this is, and how many elements of the whole are given if all shards are as far.

        Args:
            plan: the chain.
            even: every element that was read counts among those delivered.
        """
        found = sharding(plan)
        if found is None:
            return None
        shard = found.node
        given = (self.begin_at or 0) + shard.shards * found.rows * self.in_epoch
        elements = given if even and not self.uneven else None
        return {"shards": shard.shards, "index": shard.index, "elements": elements}


def state_of(
    chain: StateHeader,
    progress: Progress,
    types: dict[int, ElementType],
    even: bool,
    ended: bool,
    flow: State,
    behind: int = 0,
) -> dict[str, Any]:
    """Where an iterator stands, as JSON.

    Args:
        chain: what it belongs to.
        progress: its counts.
        types: those that only first elements told.
        even: see `Progress.shard_of`.
        ended: it is at the end of its last epoch.
        flow: the snapshot of what it takes from.
        behind: elements that this has given since, to be passed over.
    """
    stand: Stand = "end" if ended else "begin" if flow is None and not behind else "inside"
    state = {
        **chain.head(),
        "stand": stand,
        "epoch": progress.epoch,
        "delivered": progress.delivered,
        "in_epoch": progress.in_epoch,
        "left_out": progress.left_out,
        "noted": list(progress.noted.elements()),
        "types": packed(types_to_json(types)),
        "begin_at": progress.begin_at,
        "shard": progress.shard_of(chain.plan, even),
    }
    if stand == "inside":
        state["flow"] = packed(chain.numbered(to_json(flow)))
        state["behind"] = behind
    return sealed(state)


@dataclass(frozen=True, slots=True)
class Resume:
    """A state that was checked: all that an iterator takes over from it.

    Attributes:
        stand: where in the epoch.
        progress: the counts.
        types: those that only first elements told.
        flow: the snapshot of what it took from, if it stands inside an epoch.
        plan: the chain, behind the elements that were given before shards were shared out anew.
        behind: elements that the flow has given since its snapshot.
    """

    stand: Stand
    progress: Progress
    types: dict[int, ElementType]
    flow: State
    plan: Node
    behind: int = 0

    @classmethod
    def checked(cls, chain: StateHeader, given: Any) -> Resume:
        """Check what a user gave; nothing else changes.

        Args:
            chain: of the iterator.
            given: a state, or a list of those of all shards.

        Raises:
            StateError: it is damaged, or belongs to something else.
        """
        states: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
        moves = [resharded(chain.plan, state) for state in states]
        for state, move in zip(states, moves, strict=True):
            chain.check(state, move is not None)
            if isinstance(move, str):
                raise StateError(move)
        if any(state.get("epoch") != states[0].get("epoch") for state in states):
            raise StateError("load_state_dict needs states of one epoch, got several; save them after the same step")
        one_of(given)
        own = moves.index(None) if None in moves else 0
        try:
            return cls._of(chain, states[own], moves[own])
        except (Malformed, TypeError, KeyError, AttributeError, ValueError, zlib.error, RecursionError) as error:
            if isinstance(error, StateError):
                raise
            raise corrupt_state() from error

    @classmethod
    def _of(cls, chain: StateHeader, state: dict[str, Any], moved: Any) -> Resume:
        """One state; behind `moved` elements of the whole if it is of other shards."""
        stand: Stand = state.get("stand", "")
        epoch, begin, shard = (state.get(name) for name in ("epoch", "begin_at", "shard"))
        flow = chain.named(unpacked(state.get("flow"))) if stand == "inside" else None
        behind = as_int(state.get("behind"), "behind") if stand == "inside" else 0
        if stand not in ("begin", "inside", "end") or (stand == "inside" and flow is None and not behind):
            raise corrupt_state()
        delivered, in_epoch, left_out = (
            as_int(state.get(name), name) for name in ("delivered", "in_epoch", "left_out")
        )
        if in_epoch > delivered:
            raise corrupt_state()
        if moved is not None:
            stand, flow, behind, begin, in_epoch = "end" if stand == "end" else "begin", None, 0, moved, 0
        progress = Progress(
            epoch=None if epoch is None else as_int(epoch, "epoch"),
            delivered=delivered,
            before=delivered - in_epoch,
            left_out=left_out,
            noted=Counter(state["noted"]),
            begin_at=None if begin is None else as_int(begin, "begin_at"),
            uneven=isinstance(shard, dict) and shard.get("elements") is None,
        )
        plan = chain.plan if progress.begin_at is None else begun(chain.plan, progress.begin_at)
        return cls(stand, progress, types_from_json(unpacked(state.get("types"))), flow, plan, behind)
