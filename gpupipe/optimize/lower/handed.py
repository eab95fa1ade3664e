"""handed: the lowering of datasets of other libraries that the user handed in."""

from __future__ import annotations

from ...flow.run import Flow
from ...flow.sources.arrays import SlicesFlow
from ...flow.sources.handed import HandedFlow
from ...flow.sources.rows import RowsFlow
from ...plan.handed import HandedRows, HandedStream
from ...plan.node import Node
from ..pending import Pending
from .lowerer import Lowerer, Lowering
from .sources import plain

__all__ = ["HANDED"]


def handed_rows(lowerer: Lowerer, node: HandedRows) -> Pending:
    """Read the rows of a dataset of another library, which has an index."""
    label = SlicesFlow((node.label.encode(errors="surrogateescape"),), whole=True)
    flow = RowsFlow(label, 0, node.format, node.names, node.type.specs, lowerer.above.ahead)
    return Pending.columns_of(flow, node.element, (node.describe(),))


def handed_stream(node: HandedStream) -> Flow:
    """Read the rows of a dataset of another library, which can only be iterated over."""
    return HandedFlow(node.form, node.names, node.type.specs, node.label)


HANDED: dict[type[Node], Lowering] = {HandedRows: handed_rows, HandedStream: plain(handed_stream)}
