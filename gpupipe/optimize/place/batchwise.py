"""batchwise: ops that need all rows of a batch, between those that take them one by one.

An executor computes rows. What needs a whole batch is array code, run on what the executor gives, where it gives it.
So a graph is cut behind such an op: its results are a batch again, whose rows the next stage takes apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graph.host_values import is_batchwise, is_image
from ...graph.values import Apply, Const, Identity, Item, Value, topological

__all__ = ["array_calls", "behind", "executed"]


def behind(values: Sequence[Value]) -> tuple[Value, ...]:
    """What has to be there as a batch before ops on rows can go on behind one on batches; empty if none does.

    Every value that such a later value reads, and every leaf that is not later itself.
    """
    reads: set[Value] = set()  # depends on an op on batches
    later: set[Value] = set()  # and is (or depends on) an op on rows behind it
    needed: dict[Value, None] = {}
    for value in topological(values):
        below = value.inputs
        if is_batchwise(value):
            reads.add(value)
            if any(x in later for x in below):
                later.add(value)
        elif any(x in reads for x in below):
            reads.add(value)
            later.add(value)
        if value in later:
            needed.update(dict.fromkeys(x for x in below if x not in later))
    if not later:
        return ()
    needed.update(dict.fromkeys(value for value in values if value not in later))
    return tuple(value for value in needed if not isinstance(value, Const | Identity))


def executed(values: Iterable[Value]) -> tuple[Value, ...]:
    """The image values that an executor has to give: those to deliver, and those that array code reads."""
    found: dict[Value, None] = {}
    for value in values:
        if is_batchwise(value):
            call = value.value if isinstance(value, Item) else value
            found.update(dict.fromkeys(executed(call.inputs)))
        elif is_image(value):
            found[value] = None
    return tuple(found)


def array_calls(values: Sequence[Value]) -> tuple[Apply, ...]:
    """The calls of ops on batches, inputs before users."""
    return tuple(value for value in topological(values) if isinstance(value, Apply) and is_batchwise(value))
