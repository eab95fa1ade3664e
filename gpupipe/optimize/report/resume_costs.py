"""resume_costs: what going on behind a state costs, where a step has no place to begin again, for `explain()`."""

from __future__ import annotations

from ...options import Settings
from ...plan.files import FileCache
from ...plan.node import Node, walk
from ...plan.scanning import PadToCardinality, Scan, Unique
from ...plan.sources import FromGenerator, Records
from ...plan.steps import Cache
from ...plan.windows import Bucketed, GroupByWindow, RaggedBatch, Rebatch, Window

__all__ = ["resuming"]


def resuming(root: Node, settings: Settings) -> list[str]:
    """One line for each step of a chain that has to do something again behind `load_state_dict`."""
    found: dict[str, None] = {}
    for node in walk(root):
        for part in (node, *walk(inner)) if isinstance(inner := getattr(node, "inner", None), Node) else (node,):
            text = _again(part, settings)
            if text:
                found[f"{part.describe()} {text}"] = None
    return list(found)


def _again(node: Node, settings: Settings) -> str:
    match node:
        case FromGenerator():
            return "is called anew, and what it gave before is passed over"
        case FileCache():
            return "goes on without a file if it was half written"
        case Cache():
            return (
                "begins empty: a pass that was filling it goes on without it, one over a full one reads its input anew"
            )
        case Unique():
            return "sees its elements again from the begin of the pass"
        case Scan():
            return "sees its elements again if its state is larger than 4 KB"
        case Records(compression=compression) if compression:
            return "decompresses its file from the begin again"
        case Window() | GroupByWindow() | Bucketed() | RaggedBatch() | Rebatch() | PadToCardinality():
            if settings.on_error == "replace":
                return 'sees its elements again from the begin of the pass, under on_error="replace"'
    return ""
