"""measure: a meter around each step of a chain, while `Dataset.profile` lowers it; see `timing`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ...flow.measured import measured
from ...flow.order.shuffle_by_index import has_cheap_index
from ...flow.run import Flow
from ...plan.node import Node
from ...plan.sources import Param
from ...timing import TRACKER
from ..pending import Pending

__all__ = ["measured_step"]


def measured_step(node: Node, inputs: Sequence[Pending], pending: Pending) -> Pending:
    """Measure what lowering a node has put on top of its inputs. A source in memory is part of the step above it."""
    if TRACKER.get() is None or isinstance(node, Param):
        return pending
    text = next((step for step in reversed(pending.steps) if not step.startswith(" ")), node.describe())
    if inputs and len(pending.above) > len(inputs[0].above):
        *below, last = pending.above
        return replace(pending, above=(*below, lambda flow: measured(last(flow), text, node.line)))
    if any(pending.flow is given.flow for given in inputs) or has_cheap_index(pending.flow):
        return pending
    return replace(pending, flow=measured(pending.flow, text, node.line, _kind(node, pending.flow)))


def _kind(node: Node, flow: Flow) -> str:
    """What the thread that asks a step for elements does in it."""
    if node.facts.work != "step":
        return node.facts.work
    from ...flow.combine.interleave import InterleaveFlow
    from ...flow.maps.host_program import HostProgram
    from ...flow.maps.python_function import PythonFunction
    from ...flow.maps.python_map import PythonMapFlow

    if isinstance(flow, PythonMapFlow) and flow.calls:
        return "workers"
    if isinstance(flow, InterleaveFlow) and flow.threads:
        return "queue"
    parts: list[Any] = [getattr(flow, field.name) for field in fields(flow)] if is_dataclass(flow) else []
    if any(isinstance(part, PythonFunction) for part in parts):
        return "python"
    return "host" if any(isinstance(part, HostProgram) for part in parts) else "step"
