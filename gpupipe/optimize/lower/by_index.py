"""by_index: the lowering of steps that choose by place, and the length of a chain whose files must be counted."""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...extract.storage.waiting import LIMITS
from ...flow.access import access
from ...flow.maps.python_function import PythonFunction
from ...flow.maps.python_map import PythonMapFlow
from ...flow.order.by_index import SelectFlow
from ...flow.run import Context, Run
from ...flow.sources.arrays import ItemsFlow
from ...options import Settings
from ...plan.indexed import ENDLESS, Counted, FromIndexable, Select, blocker
from ...plan.node import INFINITE, UNKNOWN_CARDINALITY, Node, walk
from ...plan.steps import FlatMap
from ...spec import LEAF
from ..pending import Pending
from ..place.placer import Placer
from .registry import lowers

if TYPE_CHECKING:
    from .lowerer import Lowerer

__all__ = ["length"]


@lowers(Select)
def _select(lowerer: Lowerer, node: Select) -> Pending:
    source = lowerer.done[id(node.source)]
    return source.through(lambda flow: SelectFlow(flow, node.order), f"{node.describe()} by an index, nothing is held")


@lowers(FromIndexable)
def _from_indexable(lowerer: Lowerer, node: FromIndexable) -> Pending:
    declared = node.signature
    result = None if declared.structure is None else (declared.structure, declared.specs)
    function = PythonFunction(_Item(node.items), LEAF, "from_indexable", result, site="from_indexable")
    calls = lowerer.settings.threads if node.calls < 0 else node.calls
    flow = PythonMapFlow(ItemsFlow(node.count), function, calls)
    text = f"{node.describe()}{f' in {calls} threads' if calls else ''}"
    return lowerer.learned(node, flow, (text,), function.learned, function.seen)


@dataclass(frozen=True)
class _Item:
    """Asks an object for one of its items."""

    items: Any

    def __call__(self, i: int) -> Any:
        return self.items[int(i)]


def length(root: Node, settings: Settings) -> int:
    """How many elements a chain has, where the headers of its files tell; `UNKNOWN_CARDINALITY` where they do not.

    Sources of records are counted, and every node above computes its own number from theirs. Files are taken in the
    order of epoch 0.

    Raises:
        LengthError: a file could not be read to its end, and `lost_files` is "raise". Else it is said in the log.
    """
    done: dict[int, Node] = {}
    for node in walk(root, lambda node: node.cardinality != UNKNOWN_CARDINALITY or _countable(node)):
        if node.cardinality != UNKNOWN_CARDINALITY:
            done[id(node)] = node
        elif _countable(node):
            done[id(node)] = Counted(node.element, copy_context().run(_counted, node, settings), line=node.line)
        elif not node.sources:
            return UNKNOWN_CARDINALITY
        else:
            done[id(node)] = node.with_sources([done[id(source)] for source in node.sources])
    return done[id(root)].cardinality


def _countable(node: Node) -> bool:
    return isinstance(node, FlatMap) and blocker(node) is None


def _counted(node: Node, settings: Settings) -> int:
    """How many elements the datasets of the outer elements have together. For a context of its own."""
    from .lowerer import Lowerer

    run = Run(settings, counting=True)
    try:
        LIMITS.set(run.limits)
        flow = Lowerer(settings, Placer(settings, dry=True), None).run(node).flow
        size = access(flow, Context(run)).size
        return INFINITE if size == ENDLESS else size
    finally:
        run.close()
