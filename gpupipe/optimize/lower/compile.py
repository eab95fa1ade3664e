"""compile: lowers a whole chain into flows and stages, and lists the families of steps that can be lowered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from weakref import WeakKeyDictionary

from ...classes import dataclass
from ...errors import PlanError
from ...extract.storage.files import LOCAL, User
from ...flow.maps.to_gpu import OneKindFlow
from ...flow.measured import measured
from ...flow.prefetch.prefetch import PrefetchFlow
from ...flow.run import Context, Flow
from ...flow.stall import Where
from ...graph.host_values import is_image
from ...graph.values import topological
from ...options import Settings
from ...plan.index import loses_batches
from ...plan.node import ElementType, Node, walk
from ...plan.order import Prefetch, without_last_steps
from ...plan.ranks import SKIPS, WORKERS_SKIP, handed_to_workers, ranks_of, with_own_rows, workers_of
from ..pending import AHEAD, Pending
from ..place.placer import Placer
from ..rules.graph_rules import GRAPH_RULES
from ..rules.plan_rules import PLAN_RULES, disabled_rules, rewrite
from .annotate import Above
from .lowerer import Lowerer, Lowering, Steps, answered

__all__ = ["LOWERINGS", "RULES", "Lowered", "lower", "lower_dry", "lower_in", "without_trailing"]

FAMILIES = {
    "sources": "SOURCES",
    "maps": "MAPS",
    "order": "ORDER",
    "batches": "BATCHES",
    "joins": "JOINS",
    "windows": "WINDOWS",
    "cache": "CACHES",
    "handed": "HANDED",
}
"""The modules with a table of lowerings each, those of most chains first, and the name of the table."""


class Lowerings(Mapping[type[Node], Lowering]):
    """The function that lowers each class of nodes. A family is imported when a chain has a node that may be of it."""

    def __init__(self) -> None:
        self._found: dict[type[Node], Lowering] = {}
        self._left = list(FAMILIES)

    def __getitem__(self, kind: type[Node]) -> Lowering:
        alike = kind.__module__.rpartition(".")[2]  # most families have the nodes of the module of their name
        for family in sorted(self._left, key=lambda family: family != alike):
            if kind in self._found:
                break
            self._load(family)
        return self._found[kind]

    def __iter__(self) -> Iterator[type[Node]]:
        for family in tuple(self._left):
            self._load(family)
        return iter(self._found)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, family: str) -> None:
        table: Mapping[type[Node], Lowering] = getattr(import_module(f".{family}", __package__), FAMILIES[family])
        self._found.update(table)
        with suppress(ValueError):  # another thread was here
            self._left.remove(family)


LOWERINGS: Mapping[type[Node], Lowering] = Lowerings()
"""The function that lowers each class of nodes."""

RULES = (*(rule.__name__ for rule in PLAN_RULES), *GRAPH_RULES, "deferral", "map_and_batch")
"""Every rule that `Options.disabled_rules` can name."""


@dataclass(frozen=True)
class Lowered:
    """A chain that can run.

    Attributes:
        flow: yields delivered elements, one column per leaf.
        element: their type; unknown where a Python function decides it and nothing was read.
        steps: the flow in words.
        placer: has the notes of its stages.
        fired: how often each plan rule fired.
        learned: types learned from first elements, by the number of the step.
        tuned: the steps whose numbers AUTOTUNE chooses, in words.
    """

    flow: Flow
    element: ElementType
    steps: tuple[str, ...]
    placer: Placer
    fired: dict[str, int]
    learned: dict[int, ElementType]
    tuned: tuple[str, ...] = ()


def lower_in(root: Node, settings: Settings, at: Context, known: Mapping[int, ElementType] | None = None) -> Lowered:
    """Lower a plan to be opened in a context: first elements that are needed are peeked there, and kept.

    Args:
        root: the plan.
        settings: its options, resolved.
        at: the context.
        known: `Lowered.learned` of an earlier run: those steps are not peeked.

    Raises:
        DataError: so many elements failed that there may never be a good one; the first of their errors.
    """
    if ranks_of(root) is not None:
        at.run.ranked = True
    for node in walk(root):
        if not node.sources and node not in _READ:
            _READ[node] = LOCAL.user()
    return answered(lower(root, settings, known), at)


_READ: WeakKeyDictionary[Node, User] = WeakKeyDictionary()
"""What keeps local files open as long as the source of a chain is there that was opened."""


def lower_dry(root: Node, settings: Settings) -> Lowered:
    """Lower a plan that will not run: nothing is read, so types that depend on first elements stay unknown."""
    return answered(lower(root, settings, dry=True))


def lower(
    root: Node, settings: Settings, known: Mapping[int, ElementType] | None = None, dry: bool = False
) -> Steps[Lowered]:
    """Lower a plan step by step without reading data: it yields for each first element that it needs to continue.

    Args:
        root: the plan.
        settings: its options, resolved.
        known: `Lowered.learned` of an earlier run: those steps are not asked for.
        dry: nothing will run: it never yields, and an executor that this machine lacks is described, not refused.
    """
    for name in settings.disabled_rules:
        if name not in RULES:
            raise PlanError(f"Options.disabled_rules needs names of rules ({', '.join(RULES)}), got {name!r}")
    if settings.on_error == "skip":
        _refuse_skipping(root)
    root, fired = rewrite(handed_to_workers(with_own_rows(root), settings.seed), disabled_rules(settings))
    numbers = {id(node): i for i, node in enumerate(walk(root))}
    above, placer = Above(delivers=True), Placer(settings, dry=dry)
    lowerer = Lowerer(settings, placer, LOWERINGS, above, not dry, known or {}, numbers)
    root, trailing = without_trailing(root)
    pending = yield from lowerer.steps(root)
    flow, placed, steps = _delivered(pending, lowerer, trailing)
    return Lowered(flow, placed.element, steps, placer, fired, lowerer.learned, tuple(lowerer.tuned))


def _refuse_skipping(root: Node) -> None:
    """Refuse a choice of batches by number where a bad element would take its whole batch along; and ranks.

    Raises:
        PlanError: names the step.
    """
    ranks = ranks_of(root)
    if ranks is not None:
        raise PlanError(f"{SKIPS}, at {ranks.line}")
    workers = workers_of(root)
    if workers is not None:
        raise PlanError(f"{WORKERS_SKIP}, at {workers.line}")
    step = loses_batches(root)
    if step is not None:
        raise PlanError(
            f"{step.describe()} at {step.line} needs on_error='raise' or 'replace', got 'skip': a batch by its number "
            "has only its own rows, so a bad one would take the whole batch along; choose before batch, or go through "
            "batches in order: skip(n) and take(n) fill them"
        )


def _delivered(pending: Pending, lowerer: Lowerer, last: Prefetch | None) -> tuple[Flow, Pending, tuple[str, ...]]:
    """The flow of delivered elements, its input, and the flow in words; `last` says how many elements may wait."""
    placer, trailing = lowerer.placer, 0 if last is None else AHEAD if last.size < 0 else last.size
    threaded = pending.batch is not None or pending.unstack or any(map(is_image, topological(pending.values)))
    if trailing and threaded:
        pending = replace(pending, ready=trailing)
    placed = placer.place(pending, deliver=True, label="delivery")
    flow, steps = placed.flow, placed.steps
    if placer.made and placer.has_gpu():
        flow = OneKindFlow(flow, placed.on_gpu, placer.hand_over())
        kinds = f"each column stays where its first array is, on GPU {placer.choice().device_id} or the host"
        steps = (*steps, kinds)
    if last is not None and trailing and not placer.notes:
        text, (trailing, tuned) = last.describe(), lowerer.number(last, last.size, trailing)
        flow = measured(PrefetchFlow(flow, trailing, Where(text, last.line), tuned), text, last.line, "queue")
    if trailing:
        steps = (*steps, f"prefetch({trailing}): finished elements that wait")
    return flow, placed, steps


def without_trailing(root: Node) -> tuple[Node, Prefetch | None]:
    """A plan without the prefetches at its end, and the one of them that says how many elements wait there.

    Rules have merged those that stand next to each other; with options between them, the largest holds for all.
    """
    last: Prefetch | None = None
    root, steps = without_last_steps(root)
    for step in steps:
        if isinstance(step, Prefetch) and (last is None or (last.size >= 0 and not 0 <= step.size <= last.size)):
            last = step
    return root, last
