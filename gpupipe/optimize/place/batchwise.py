"""batchwise: ops that need all rows of a batch, among ops that take rows one by one.

An executor computes rows. An op on a whole batch is array code that runs on the results of the executor, on the same
device. So a graph is cut after such an op: its results are a batch again, whose rows the next stage takes apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graph.host_values import is_batchwise, is_image
from ...graph.values import Apply, Const, Identity, Item, Value, topological

__all__ = ["array_calls", "executed", "needed_by_later_rows"]


def needed_by_later_rows(values: Sequence[Value]) -> tuple[Value, ...]:
    """List the values to compute as batches before ops on rows that follow an op on batches; empty if none follow.

    These are all values that such later ops read, and all leaves that are not later themselves.
    """
    reads: set[Value] = set()  # depends on an op on batches
    later: set[Value] = set()  # and is (or depends on) an op on rows after it
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
    """List the image values that an executor has to output: those to deliver, and those that array code reads."""
    found: dict[Value, None] = {}
    for value in values:
        if is_batchwise(value):
            call = value.value if isinstance(value, Item) else value
            found.update(dict.fromkeys(executed(call.inputs)))
        elif is_image(value):
            found[value] = None
    return tuple(found)


def array_calls(values: Sequence[Value]) -> tuple[Apply, ...]:
    """List the calls of ops on batches, inputs before users."""
    return tuple(value for value in topological(values) if isinstance(value, Apply) and is_batchwise(value))
