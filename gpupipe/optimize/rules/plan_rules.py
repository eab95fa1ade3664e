"""plan_rules: rewrites of plans. Each docstring is the equation: the left side becomes the right side.

They hold with holes (which keep their positions until a batch), with `repeat` (the branch numbers of nodes are kept)
and with random ops (draws depend on identity only).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ...classes import dataclass
from ...errors import GpupipeError
from ...options import Settings
from ...plan.node import Buffer, Facts, Node, Step, walk
from ...plan.order import Prefetch, Repeat, Shard, Shuffle, Skip, Take, buffer_name, shuffle_buffer
from .select_rules import choose_batches, choose_rows, sink_selects

__all__ = ["PLAN_RULES", "ShuffleRepeat", "disabled_rules", "rewrite"]


@dataclass(frozen=True, slots=True, eq=False)
class ShuffleRepeat(Step):
    """A shuffle and a repeat in one: the buffer fills with the next pass while it drains the last one."""

    facts = Facts(name="shuffle_and_repeat", payload="holds", as_they_are=True)

    size: int
    seed: int | None
    reshuffle: bool
    count: int

    def _cardinality(self) -> int:
        return Repeat(self.source, self.count, line=self.line).cardinality

    def describe(self) -> str:
        return f"shuffle_and_repeat({buffer_name(self.size)}, {'endlessly' if self.count < 0 else self.count})"

    def buffer(self, settings: Settings) -> Buffer:
        return shuffle_buffer(self.size, self.source)


def drop_no_ops(node: Node) -> Node | None:
    """take(-1), skip(0), repeat(1), shard(1, 0), prefetch(0) => nothing."""
    match node:
        case Take(source=source, count=count) if count < 0:
            return source
        case Skip(source=source, count=0) | Repeat(source=source, count=1) | Prefetch(source=source, size=0):
            return source
        case Shard(source=source, shards=1):
            return source
        case _:
            return None


def merge_takes(node: Node) -> Node | None:
    """take(a).take(b) => take(min(a, b))."""
    match node:
        case Take(source=Take(source=source, count=a), count=b) if a >= 0 and b >= 0:
            return replace(node, source=source, count=min(a, b))
        case _:
            return None


def merge_skips(node: Node) -> Node | None:
    """skip(a).skip(b) => skip(a + b)."""
    match node:
        case Skip(source=Skip(source=source, count=a), count=b) if a >= 0 and b >= 0:  # negative means: skip everything
            return replace(node, source=source, count=a + b)
        case _:
            return None


def merge_prefetches(node: Node) -> Node | None:
    """prefetch(a).prefetch(b) => prefetch(max(a, b)); AUTOTUNE wins."""
    match node:
        case Prefetch(source=Prefetch(source=source, size=a), size=b):
            return replace(node, source=source, size=-1 if a < 0 or b < 0 else max(a, b))
        case _:
            return None


def shuffle_and_repeat(node: Node) -> Node | None:
    """``.shuffle(n).repeat(m) => .shuffle_and_repeat(n, m)``: the same order, without a stall between passes."""
    match node:
        case Repeat(source=Shuffle(source=source, size=size, seed=seed, reshuffle=reshuffle), count=count) if (
            count != 0
        ):
            return ShuffleRepeat(source, size, seed, reshuffle, count, line=node.line, branch=node.branch)
        case _:
            return None


PLAN_RULES: tuple[Callable[[Node], Node | None], ...] = (
    drop_no_ops,
    merge_takes,
    merge_skips,
    merge_prefetches,
    shuffle_and_repeat,
    choose_batches,
    sink_selects,
    choose_rows,
)
"""The rules of plans, in the order in which they are tried."""


_MOST_ROUNDS = 100


def disabled_rules(settings: Settings) -> tuple[str, ...]:
    """The names of the rules that may not fire: those that the options disable, and those that `on_error` rules out."""
    by_itself = {"raise": (), "skip": ("choose_batches",), "replace": ("choose_batches", "choose_rows")}
    return (*settings.disabled_rules, *by_itself[settings.on_error])


def rewrite(root: Node, disabled: Collection[str] = ()) -> tuple[Node, dict[str, int]]:
    """Apply the rules, inputs first, until nothing changes.

    Returns:
        The new plan, and how often each rule fired.

    Raises:
        GpupipeError: the rules do not converge, or one changed the type of the elements.
    """
    rules = [rule for rule in PLAN_RULES if rule.__name__ not in disabled]
    fired: dict[str, int] = {}
    for _ in range(_MOST_ROUNDS):
        done: dict[int, Node] = {}
        changed = False
        for node in walk(root):
            sources = tuple(done[id(source)] for source in node.sources)
            now = (
                node if all(a is b for a, b in zip(sources, node.sources, strict=True)) else node.with_sources(sources)
            )
            for rule in rules:
                new = rule(now)
                if new is None:
                    continue
                if new.element != now.element:
                    raise GpupipeError(
                        f"the rule {rule.__name__} changed the element of {now.describe()}; please report it"
                    )
                fired[rule.__name__] = fired.get(rule.__name__, 0) + 1
                now, changed = new, True
            done[id(node)] = now
        root = done[id(root)]
        if not changed:
            return root, fired
    raise GpupipeError(f"the rules {sorted(fired)} do not converge on this plan; please report it")
