"""split_host: moves the host part of a graph before the stage that runs the rest."""

from __future__ import annotations

from collections.abc import Sequence

from ...classes import dataclass
from ...flow.maps.host_program import HeaderCheck
from ...graph.host_values import is_image
from ...graph.values import Apply, Const, Draw, Identity, Input, Item, Value, topological
from ...ops.dali_function import DaliFunction, known_size
from ...plan.node import ElementType
from ...spec import Structure
from ...transform.program import Program

__all__ = [
    "Prepared",
    "columns_read",
    "input_of",
    "loose",
    "needed_for_size",
    "needed_on_host",
    "passes",
    "prepare",
    "replaced",
    "taken_from_gpu",
]


@dataclass(frozen=True)
class Prepared:
    """A pending graph with its host part moved before the stage.

    Attributes:
        values: the leaves, over the new columns.
        columns: the values that the host computes for each element, over the old columns.
        headers: for each (bytes, oriented), the column of image sizes.
        host_values: those of `columns` that are neither identities nor header checks.
    """

    values: tuple[Value, ...]
    columns: tuple[Value | HeaderCheck, ...]
    headers: tuple[tuple[tuple[Value, bool], int], ...]
    host_values: tuple[Value, ...]


def prepare(values: tuple[Value, ...]) -> Prepared:
    """Move host work before the stage: one column for each host value that the graph, a draw or a leaf reads."""
    order = topological(values)
    late = _drawn(order)
    used: dict[Value, None] = {}

    def note(value: Value) -> None:
        if not isinstance(value, (Const, Draw, Identity)) and not is_image(value) and value not in late:
            used[value] = None

    for value in order:
        if is_image(value) or isinstance(value, Draw) or value in late:
            for below in value.inputs:
                note(below)
    for value in values:
        note(value)
    columns: list[Value | HeaderCheck] = list(used)
    moved: dict[Value, Value] = {value: Input(i, value.spec) for i, value in enumerate(used)}
    identities: dict[int, int] = {}
    for value in order:
        if isinstance(value, Identity) and value.index >= 0 and value.index not in identities:
            identities[value.index] = len(columns)
            columns.append(Input(value.index, value.spec))
    checks: dict[tuple[Value, bool], HeaderCheck] = {}
    for value in order:
        if isinstance(value, Apply) and value.op.decodes and value.x[0] not in late:
            oriented = bool(getattr(value.op, "exif_orientation", False))
            checks.setdefault((value.x[0], oriented), HeaderCheck(value.x[0], oriented, value.op.stage))
    new = replaced(values, moved, {}, identities)
    headers = []
    for (data, oriented), check in checks.items():
        headers.append(((moved.get(data, data), oriented), len(columns)))
        columns.append(check)
    return Prepared(new, tuple(columns), tuple(headers), tuple(used))


def _drawn(order: Sequence[Value]) -> set[Value]:
    """Find host values that depend on a draw or an image: they are computed once the batch is complete."""
    late: set[Value] = set()

    def drawn(value: Value) -> bool:
        return value in late or isinstance(value, (Draw, Identity)) or is_image(value)

    for value in order:
        if (isinstance(value, Item) and isinstance(value.value, Draw)) or (
            not isinstance(value, Draw) and not is_image(value) and any(drawn(below) for below in value.inputs)
        ):
            late.add(value)
    return late


def replaced(
    values: Sequence[Value],
    moved: dict[Value, Value],
    columns: dict[int, int],
    identities: dict[int, int] | None = None,
) -> tuple[Value, ...]:
    """Replace values by columns; values that only a replaced one read disappear.

    Args:
        values: the leaves of a graph.
        moved: the column of each replaced value.
        columns: the new index of each old column that is kept.
        identities: the same for identities; None uses `columns`.
    """
    done: dict[Value, Value] = {}
    for value in topological(values):
        if value in moved:
            done[value] = moved[value]
        elif isinstance(value, Input) and value.index in columns:
            done[value] = Input(columns[value.index], value.spec)
        elif isinstance(value, Identity) and value.index >= 0:
            table = columns if identities is None else identities
            done[value] = Identity(table.get(value.index, value.index))
        else:
            inputs = value.inputs
            new = tuple(done[below] for below in inputs)
            done[value] = value if new == inputs else value.rebuild(new)
    return tuple(done[value] for value in values)


def passes(columns: Sequence[Value | HeaderCheck], count: int) -> bool:
    """Whether the new columns are the old ones."""
    return len(columns) == count and all(isinstance(c, Input) and c.index == i for i, c in enumerate(columns))


def taken_from_gpu(prepared: Prepared, program: Program, references: frozenset[int]) -> frozenset[int]:
    """Find the old columns with arrays of a cache that a graph takes from the GPU: all that read them are its ops.

    Args:
        prepared: the stage.
        program: its graph.
        references: columns that may hold references to records, which are bytes, or arrays of a cache.
    """
    inside, images = set(program.values), program.images
    read: set[Value] = set(prepared.values)
    for value in topological(prepared.values):
        if isinstance(value, Draw):  # of its images it needs the sizes alone
            read.update(value.args, (value.key,))
        elif value not in inside:
            read.update(value.inputs)
        elif isinstance(value, Apply):
            read.update(value.params, (x for x in value.x if x not in images))
    late = {x.index for x in read if isinstance(x, Input)}
    computed = [column.data if isinstance(column, HeaderCheck) else column for column in prepared.columns]
    before = {x.index for x in topological(c for c in computed if not isinstance(c, Input)) if isinstance(x, Input)}
    return frozenset(
        column.index
        for n, column in enumerate(prepared.columns)
        if isinstance(column, Input) and column.index in references - before
        if column.spec.dtype is not None and column.spec.dtype is not bytes and n not in late
    )


def needed_on_host(values: Sequence[Value]) -> tuple[Value, ...]:
    """Find image values that host ops read, the lowest first: only those that depend on no other such op."""
    order = topological(values)
    tainted: set[Value] = set()  # depends on a host op that read an image
    needed: dict[Value, None] = {}
    for value in order:
        if any(below in tainted for below in value.inputs):
            tainted.add(value)
            continue
        if isinstance(value, Apply) and not is_image(value):
            images = [below for below in value.x if is_image(below)]
            if images:
                tainted.add(value)
                needed.update(dict.fromkeys(images))
    return tuple(needed)


def needed_for_size(values: Sequence[Value]) -> tuple[Value, ...]:
    """Find the lowest image of a size known only once it is computed, if geometry above it depends on that size."""
    order = topological(values)
    asked: set[Value] = set()  # its size is needed by a draw, directly or through the ops between
    for value in reversed(order):
        if isinstance(value, Draw):
            asked.update(value.x)
        elif value in asked and not _unsized(value):
            joint = isinstance(value, Apply) and value.op.broadcasts
            asked.update(value.inputs if joint else value.inputs[:1])
    return next(((value,) for value in order if value in asked and _unsized(value)), ())


def _unsized(value: Value) -> bool:
    """Whether a value comes from a user's DALI operators, which do not declare the size of their results."""
    made = value.value if isinstance(value, Item) else value
    if not isinstance(made, Apply) or not isinstance(made.op, DaliFunction) or made.op.same_size:
        return False
    return known_size(value.spec) is None


def columns_read(values: Sequence[Value]) -> set[int]:
    """The columns that values read, identities included."""
    read = {value.index for value in topological(values) if isinstance(value, Input)}
    return read | {value.index for value in topological(values) if isinstance(value, Identity) and value.index >= 0}


def input_of(values: Sequence[Value], index: int) -> Value:
    """Column `index` as the values read it."""
    for value in topological(values):
        if isinstance(value, Input) and value.index == index:
            return value
    return Input(index, Identity(index).spec)


def loose(values: Sequence[Value]) -> ElementType:
    """The type of an element that is a tuple of these values."""
    structure = Structure(tuple, (), tuple(Structure() for _ in values), len(values))
    return ElementType(structure, tuple(value.spec for value in values))
