"""by_place: states that any engine takes over: a loop in this process, ranks that share batches, workers on Ray.

Where the elements of an epoch can be indexed, a position in it is a number of elements, whoever makes them. A state has
that number, its "place", beside what its own engine needs to go on; another engine starts the epoch at the place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..classes import dataclass
from ..errors import StateError, shown_line
from ..flow.state.snapshot import as_int, corrupt_state
from ..plan.batches import Batch, PaddedBatch
from ..plan.index import Select, Sliced, blocker, has_batches
from ..plan.node import Node
from ..plan.order import Skip
from ..plan.ranks import ByRank, OnRay, ranks_of, workers_of
from ..urls import cleaned

__all__ = ["Engine", "Position", "Unfit", "engine_of", "with_engine"]


class Unfit(StateError):
    """A state is whole, and belongs to the chain, and this engine cannot go on from it."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where an iterator is; see `Progress`."""

    delivered: int
    in_epoch: int = 0
    raised: int = 0
    first: int = 0
    start_at: int | None = None

    @classmethod
    def of(cls, state: dict[str, Any]) -> Position:
        """Read it from a state."""
        start_at = state.get("begin_at")
        return cls(
            as_int(state.get("delivered"), "delivered"),
            as_int(state.get("in_epoch"), "in_epoch"),
            as_int(state.get("raised", 0), "raised"),
            as_int(state.get("first", 0), "first"),
            None if start_at is None else as_int(start_at, "begin_at"),
        )


def with_engine(state: dict[str, Any], plan: Node) -> dict[str, Any]:
    """A state that says who made the elements: in version 7, `by_rank` where the chain has it, and else the loop.

    Args:
        state: it belongs to the chain.
        plan: the chain.
    """
    return state if "engine" in state else {**state, "engine": "by_rank" if ranks_of(plan) is not None else ""}


@dataclass(frozen=True, slots=True)
class Engine:
    """Who makes the elements of a chain.

    Attributes:
        plan: the chain.
        name: "", "by_rank", "on_ray" or "by_rank on_ray".
        step: the `by_rank`, or else the `on_ray`, that starts at the place of a state; None if the loop makes the
            elements itself, or if a step behind them holds or drops elements.
        rows: elements of `step` in one of the chain.
        counts: whether a position is a number of elements that can be started at by index.
    """

    plan: Node
    name: str
    step: ByRank | OnRay | None
    rows: int
    counts: bool

    @property
    def of_all(self) -> int:
        """Of `by_rank`: elements of all ranks together in an element of the chain."""
        assert isinstance(self.step, ByRank)
        return self.step.batch.size * self.rows

    def continues(self, state: dict[str, Any]) -> bool:
        """Whether a state is that of this engine: `by_rank` has one for all ranks, workers or not."""
        if isinstance(self.step, ByRank) and str(state.get("engine", "")).startswith("by_rank"):
            return state["stand"] != "inside" or state.get("engine") == self.name
        return state.get("engine", "") == self.name and not isinstance(self.step, OnRay)

    def moved(self, state: dict[str, Any], at: Position) -> Position:
        """The position of a state that another engine made, or a place.

        Raises:
            StateError: it has no place, or the elements of this chain cannot be indexed.
        """
        ranks, place = str(state.get("engine", "")).startswith("by_rank"), state.get("place")
        if state["stand"] == "end" or (state["stand"] == "begin" and place is None and not ranks):
            place = 0
        if place is None or not self.counts:
            raise Unfit(
                "load_state_dict needs a state that is a number of elements, to go on with another engine: that needs "
                "a chain that can be indexed (shuffle(gp.ALL)), only maps, batches and prefetch behind by_rank and "
                f"on_ray, and no bad elements before it, got one of "
                f"{shown_line(cleaned(str(state.get('engine') or 'a loop without ranks'))[:200])}"
            )
        place = as_int(place, "place")
        if ranks or not place:
            at = Position(max(at.delivered, place), in_epoch=place)
        elif at.in_epoch + at.raised != place:
            raise corrupt_state()
        if isinstance(self.step, ByRank):
            if at.start_at is not None:
                raise Unfit("load_state_dict needs a state of one number of shards, to go on with by_rank")
            return Position(at.delivered, start_at=place * self.of_all if place else None)
        return replace(at, first=place)

    def at(self, first: int, plan: Node) -> Node:
        """The chain from an element on.

        Args:
            first: its place.
            plan: the chain, or what is left of it for another number of shards.
        """
        if not first:
            return plan
        if not self.counts:
            return Skip(plan, first)
        return _started(plan, first * self.rows) if isinstance(self.step, OnRay) else Select(plan, Sliced(first))


def engine_of(plan: Node, on_error: str) -> Engine:
    """Find out who makes the elements of a chain; batches that are filled with what follows are made in order."""
    ranks, workers = ranks_of(plan), workers_of(plan)
    name = " ".join(["by_rank"] * (ranks is not None) + ["on_ray"] * (workers is not None))
    step, rows, node = ranks or workers, 1, plan
    if step is None:
        filled = on_error == "skip" and has_batches(plan)
        return Engine(plan, name, None, 1, not filled and blocker(plan) is None)
    while node is not step:
        if not node.facts.keeps_rows:
            return Engine(plan, name, None, 1, False)
        if isinstance(node, Batch | PaddedBatch):
            rows *= node.size
        node = node.sources[0]
    return Engine(plan, name, step, rows, True)


def _started(plan: Node, first: int) -> Node:
    """The chain whose `on_ray` starts at another element."""
    if isinstance(plan, OnRay):
        return replace(plan, first=first)
    return plan.with_sources((_started(plan.sources[0], first),))
