"""progress: the counts of an iterator, written to a state and read from it; a state is checked before it is used."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Literal, Protocol

from ..brief import brief
from ..classes import dataclass
from ..errors import GpupipeError, PlanTypeError, StateError
from ..flow.bad.found import is_written
from ..flow.bad.passes import passes_of
from ..flow.state.snapshot import State, as_int, check_count, corrupt_state
from ..log import logger
from ..options import Settings
from ..plan.node import ElementType, Node
from ..plan.ranks import ByRank, OnRay, ranks_of
from ..serial.structures import Malformed
from .by_place import Position, Unfit, with_engine
from .packed import packed, unpacked
from .reshard import Sharding, check_shards, resharded, sharding, without_first
from .state import WAY_OUT, StateHeader, check_seal, from_text, sealed, types_from_json, types_to_json

__all__ = ["Epochs", "Numbers", "Phase", "Progress", "Resume", "is_strict", "state_of"]

Phase = Literal["begin", "inside", "end"]
"""Where an iterator is in its epoch: before the first element, after some, or at the end of the last epoch."""


class Numbers(Protocol):
    """Gives an iterator the numbers of its epochs."""

    def __call__(self, progress: Progress, first: int | None = None) -> Iterator[int]:
        """Iterate over all numbers, or over those from the one of a state on."""
        ...

    def after(self, progress: Progress, epoch: int) -> Iterator[int]:
        """Iterate over the numbers after an epoch that has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Epochs:
    """Epochs whose numbers are known in advance."""

    numbers: range

    def __call__(self, progress: Progress, first: int | None = None) -> Iterator[int]:
        """Iterate over all numbers, or over those from `first` on.

        Raises:
            StateError: there is no such epoch.
        """
        if first is None:
            return iter(self.numbers)
        if first not in self.numbers:
            raise self._no_such_epoch(first)
        return iter(self.numbers[self.numbers.index(first) :])

    def after(self, progress: Progress, epoch: int) -> Iterator[int]:
        """Iterate over the numbers after an epoch that has ended; there are none after the last one.

        Raises:
            StateError: there is neither that epoch nor the next.
        """
        if epoch not in self.numbers and epoch + 1 not in self.numbers:
            raise self._no_such_epoch(epoch)
        return iter(number for number in self.numbers if number > epoch)

    def _no_such_epoch(self, epoch: int) -> StateError:
        numbers = self.numbers
        mine = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}" if numbers else "none"
        return StateError(
            f"load_state_dict needs a state of an epoch that this iterator has, {mine}, got epoch {epoch}; give the "
            "number of the state's epoch, or of the next one if that had ended"
        )


@dataclass(slots=True)
class Progress:
    """How far an iterator is.

    Attributes:
        epoch: the current epoch, at the end the last one; None before the first is known.
        delivered: elements so far, of all epochs.
        before: elements of these that were delivered before this epoch, or before the number of shards changed.
        left_out: bad elements that were left out or replaced before a state was loaded.
        noted: keys of bad elements of this epoch that were noted before a state was loaded, and how often.
        bad: what a resume needs to know of the bad elements of this epoch, see `FoundBad.since`.
        caches: what was bad in full caches, see `FoundBad.in_full_caches`.
        listed: whether records of a manifest were bad before a state was loaded.
        start_at: elements of the whole dataset before the point where the number of shards changed; else None.
        raised: elements of this epoch that raised an error instead of being delivered.
        first: elements of the whole epoch before the one with which the flow starts, where a state of another engine
            was loaded by place.
        uneven: whether bad elements were left out before a state was loaded, so the number of shards cannot change.
        ended: whether the last epoch has ended.
        look: whether this was only a look at some elements: another iterator gives the epoch as a whole.
    """

    epoch: int | None = None
    delivered: int = 0
    before: int = 0
    left_out: int = 0
    noted: Counter[int] = field(default_factory=Counter)
    bad: tuple[list[Any], bool, list[Any]] | None = None
    caches: list[tuple[int, list[Any]]] = field(default_factory=list)
    listed: bool = False
    start_at: int | None = None
    raised: int = 0
    first: int = 0
    uneven: bool = False
    ended: bool = False
    look: bool = False

    @property
    def in_epoch(self) -> int:
        """Elements delivered in this epoch."""
        return self.delivered - self.before

    def enter(self, epoch: int) -> None:
        """Start an epoch."""
        self.epoch, self.before = epoch, self.delivered
        self.noted, self.start_at, self.uneven, self.bad = Counter(), None, False, None
        self.raised = self.first = 0

    def shard_of(self, plan: Node, even: bool) -> State:
        """Return which shard this is, and how many elements of the whole dataset all shards together have given.

        Args:
            plan: the chain.
            even: whether every element that was read was delivered, so that the other shards are equally far.
        """
        found = sharding(plan)
        if found is None:
            ranks = ranks_of(plan)
            return None if ranks is None else {"shards": ranks.shards, "index": ranks.index, "elements": None}
        shard = found.node
        elements = self.of_all(found) if even and not self.uneven else None
        return {"shards": shard.shards, "index": shard.index, "elements": elements}

    def place(self, chain: StateHeader, even: bool) -> int | None:
        """Return how many elements of the epoch come before the next one; None where that is not known.

        Args:
            chain: the chain.
            even: see `shard_of`.
        """
        engine = chain.engine
        if isinstance(engine.step, ByRank):
            found = sharding(chain.plan)
            given = None if found is None or not even or self.uneven else self.of_all(found)
            return None if given is None or given % engine.of_all else given // engine.of_all
        known = engine.step is not None or (even and not self.uneven and engine.counts)
        return self.in_epoch + self.raised if known else None

    def of_all(self, found: Sharding) -> int:
        """Return how many elements all shards have given together, if they are equally far."""
        return (self.start_at or 0) + found.node.shards * found.rows * self.in_epoch


def state_of(
    chain: StateHeader,
    progress: Progress,
    types: dict[int, ElementType],
    even: bool,
    ended: bool,
    flow: State,
    skip: int = 0,
) -> dict[str, Any]:
    """Write the state of an iterator as JSON.

    Args:
        chain: the chain that the state belongs to.
        progress: the counts.
        types: the types that were learned from first elements.
        even: see `Progress.shard_of`.
        ended: whether the last epoch has ended.
        flow: the snapshot of the flow, as JSON.
        skip: elements that the flow has given since the snapshot.
    """
    phase: Phase = "end" if ended else "begin" if flow is None and not skip else "inside"
    state = {
        **chain.head(),
        "stand": phase,
        "epoch": progress.epoch,
        "delivered": progress.delivered,
        "in_epoch": progress.in_epoch,
        "left_out": progress.left_out,
        "noted": list(progress.noted.elements()),
        "types": packed(types_to_json(types)),
        "begin_at": progress.start_at,
        "shard": progress.shard_of(chain.plan, even),
        "engine": chain.engine.name,
        "raised": progress.raised,
        "first": progress.first,
        "place": progress.place(chain, even),
    }
    if isinstance(chain.engine.step, OnRay):
        state["stand"] = phase = "end" if ended else "begin"
    found = sharding(chain.plan)
    if found is not None and isinstance(found.node, ByRank) and state["shard"]["elements"] is not None:
        # The state of all ranks, in any number of them.
        state["begin_at"] = state["shard"]["elements"] if phase == "inside" else progress.start_at
        state["stand"] = phase = "end" if ended else "begin"
        state["shard"], state["in_epoch"] = None, 0
    if phase == "inside":
        state["flow"] = packed(chain.numbered(flow))
        if progress.bad is not None:
            state["bad"] = [packed(progress.bad[0]), *progress.bad[1:]]
        state["behind"] = skip
        state["listed"] = progress.listed
    if progress.caches:
        state["caches"] = packed(progress.caches)
    return sealed(state)


def bad_of(given: Any) -> tuple[list[Any], bool, list[Any]]:
    """Read the bad elements and the passes of a state; one of an earlier version does not say which there were."""
    if given is None:
        return [], False, []
    found, passes = unpacked(given[0]), given[2] if len(given) > 2 else []
    found = [one if len(one) % 4 < 2 else [one[0], 0, *one[1:]] for one in found]  # an earlier version had no scopes
    if not is_written(found):
        raise corrupt_state()
    passes_of(passes)
    return found, given[1] is True, passes


def caches_of(given: Any) -> list[tuple[int, list[Any]]]:
    """Read what was bad in full caches."""
    found = [(as_int(scope, "caches", (1 << 64) - 1), bad) for scope, bad in unpacked(given)]
    if not all(is_written(bad) for _, bad in found):
        raise corrupt_state()
    return found


def noted_of(given: Any) -> Counter[int]:
    """Read the keys of the bad elements that were noted, each as often as it is there."""
    if not isinstance(given, list):
        raise corrupt_state()
    return Counter(as_int(key, "noted", (1 << 64) - 1) for key in given)


def is_strict(given: Any, settings: Settings) -> bool:
    """Check the argument `strict` of `load_state_dict`.

    Raises:
        PlanTypeError: it is neither True, False nor None.
    """
    if given is not None and not isinstance(given, bool):
        raise PlanTypeError(f"load_state_dict needs True, False or None for strict, got {brief(given)}")
    return settings.strict_states if given is None else given


@dataclass(frozen=True, slots=True)
class Resume:
    """The contents of a state that was checked.

    Attributes:
        phase: where in the epoch the iterator was.
        progress: the counts.
        types: the types that were learned from first elements.
        flow: the snapshot of the flow, if the iterator was inside an epoch.
        plan: the chain, without the elements that were given before the number of shards changed.
        skip: elements that the flow has given since the snapshot.
    """

    phase: Phase
    progress: Progress
    types: dict[int, ElementType]
    flow: State
    plan: Node
    skip: int = 0

    @classmethod
    def checked(cls, chain: StateHeader, given: Any, strict: bool = True) -> Resume:
        """Check a user's state. Nothing is changed.

        Args:
            chain: the chain of the iterator.
            given: a state, or a list of the states of all shards.
            strict: whether a state that does not belong to the chain is refused; else its number of elements is used.

        Raises:
            StateError: the state is damaged, or does not belong to this chain.
        """
        states = [from_text(state) for state in (given if isinstance(given, (list, tuple)) else [given])]
        wrong = list(filter(None, [check_seal(state, chain.law, strict) for state in states]))
        try:
            if wrong:
                return cls._by_number(chain, states[0], wrong)
            headers = [chain.of_version(state["gpupipe_state"]) for state in states]
            pairs, signing = zip(states, headers, strict=True), chain.settings.signing_parameters
            moves = [resharded(chain.plan, state, header.ranks, signing) for state, header in pairs]
            own = moves.index(None) if None in moves else 0
            for state, header, move in zip(states, headers, moves, strict=True):
                wrong += header.differences(state, move is not None)
                wrong += [move] if isinstance(move, str) else []
            if any(state["epoch"] != states[0]["epoch"] for state in states):
                wrong.append("load_state_dict needs states of one epoch, got several; save them after the same step")
            if not wrong:
                try:
                    if not isinstance(given, dict):
                        check_shards(states)
                    return cls._of(chain, with_engine(states[own], chain.plan), moves[own])
                except Unfit as error:
                    wrong.append(str(error))
            if strict:
                raise StateError(f"{wrong[0]}{WAY_OUT}")
            return cls._by_number(chain, states[own], wrong)
        except (Malformed, TypeError, LookupError, AttributeError, ValueError, zlib.error, RecursionError) as error:
            if isinstance(error, GpupipeError):
                raise
            raise corrupt_state() from error

    @classmethod
    def _by_number(cls, chain: StateHeader, state: dict[str, Any], wrong: Sequence[str]) -> Resume:
        """Use of a state that does not belong to the chain the epoch, and how many elements of it were given."""
        phase, given, place = state["stand"], Position.of(state), state.get("place")
        if phase not in ("begin", "inside", "end"):
            raise corrupt_state()
        epoch = None if state["epoch"] is None else as_int(state["epoch"], "epoch")
        count = given.in_epoch + given.raised if place is None else as_int(place, "place")
        check_count(count)
        found = ", ".join(dict.fromkeys(one.removeprefix("load_state_dict needs ") for one in wrong))
        ended = phase == "end"
        number = epoch or 0
        where = f"with epoch {number + 1}" if ended else f"in epoch {number} after {count} elements of this chain"
        logger.warning("load_state_dict: goes on %s, as strict=False says, though it needs %s", where, found)
        position, engine = Position(given.delivered), chain.engine
        if count and not ended:
            position = Position(max(given.delivered, count), in_epoch=count, first=count)
            if engine.counts:
                position = engine.moved({"engine": "by_rank", "stand": "begin", "place": count}, position)
        return cls._at(chain, Progress(epoch=epoch), position, "end" if ended else "begin")

    @classmethod
    def _of(cls, chain: StateHeader, state: dict[str, Any], moved: Any) -> Resume:
        """Read one state; a state of other shards continues after `moved` elements of the whole dataset."""
        phase: Phase = state.get("stand", "")
        epoch, shard, engine = state.get("epoch"), state.get("shard"), chain.engine
        flow = chain.named(unpacked(state.get("flow"))) if phase == "inside" else None
        skip = as_int(state.get("behind"), "behind") if phase == "inside" else 0
        if phase not in ("begin", "inside", "end") or (phase == "inside" and flow is None and not skip):
            raise corrupt_state()
        progress = Progress(
            epoch=None if epoch is None else as_int(epoch, "epoch"),
            left_out=as_int(state.get("left_out"), "left_out"),
            noted=noted_of(state.get("noted")),
            uneven=shard is not None and shard["elements"] is None,
            bad=bad_of(state.get("bad")) if phase == "inside" else None,
            caches=caches_of(state["caches"]) if "caches" in state else [],
            listed=state.get("listed") is True,
        )
        types = types_from_json(unpacked(state.get("types")))
        position = Position.of(state)
        if moved is not None:
            position = Position(position.delivered, start_at=moved)
        elif not engine.continues(state):
            position, types = engine.moved(state, position), {}
        if moved is not None or not engine.continues(state):
            progress.bad = None
            phase, flow, skip = "end" if phase == "end" else "begin", None, 0
        if position.in_epoch > position.delivered or position.first > position.in_epoch + position.raised:
            raise corrupt_state()
        check_count(position.first)
        resume = cls._at(chain, progress, position, phase)
        return replace(resume, types=types, flow=flow, skip=skip)

    @classmethod
    def _at(cls, chain: StateHeader, progress: Progress, position: Position, phase: Phase) -> Resume:
        """A position in the chain between two elements, from which its flow starts."""
        progress.delivered, progress.before = position.delivered, position.delivered - position.in_epoch
        progress.start_at, progress.raised, progress.first = position.start_at, position.raised, position.first
        plan = chain.plan if position.start_at is None else without_first(chain.plan, position.start_at)
        return cls(phase, progress, {}, None, chain.engine.at(position.first, plan))
