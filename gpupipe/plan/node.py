"""node: the base of every plan node, and the facts that each class of them lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, fields, replace
from typing import Any, ClassVar, Literal

from ..brief import cut, fields_in_brief
from ..classes import dataclass
from ..graph.sites import call_site
from ..graph.trace import Traced
from ..graph.values import Value, digest_of
from ..options import Settings
from ..spec import LEAF, Structure, TensorSpec
from .named_files import NamedFiles

__all__ = [
    "INFINITE",
    "UNKNOWN_CARDINALITY",
    "Buffer",
    "ElementType",
    "Facts",
    "Node",
    "Step",
    "draws",
    "epoch_key",
    "walk",
]

INFINITE = -1
UNKNOWN_CARDINALITY = -2


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of a chain's elements.

    Attributes:
        structure: how leaves are nested; None where it is known only from the first element.
        specs: one per leaf.
        batched: whether an element is a batch: every leaf has one leading dimension of rows.
    """

    structure: Structure | None = LEAF
    specs: tuple[TensorSpec, ...] = (TensorSpec(None, None),)
    batched: bool = False

    __repr__ = fields_in_brief

    @property
    def known(self) -> bool:
        """Whether structure, dtypes and ranks are all known."""
        return self.structure is not None and all(spec.known for spec in self.specs)

    @property
    def nested(self) -> Any:
        """The structure of specs that `element_spec` shows."""
        return TensorSpec(None, None) if self.structure is None else self.structure.unflatten(self.specs)

    def rows(self) -> tuple[TensorSpec, ...]:
        """The specs of one row of a batch; the specs themselves otherwise."""
        return tuple(spec.row() for spec in self.specs) if self.batched else self.specs


ANYTHING = ElementType(None, ())


DERIVED = {"line", "element", "cardinality", "branch", "branches", "random_calls", "fingerprint"}
"""Fields that follow from the others, or do not change what the node does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts that hold for every node of a class. A class lists those that are true of it; the others default to false.

    Attributes:
        name: the method as the user wrote it, where the class is named otherwise.
        payload: what a step does with the payloads of records: "reads" them, "passes" them on, or "holds" (or skips)
            the elements, for which references to records are enough.
        holds_nothing: between two elements it holds none of its input's, except records, which can be read from their
            files again; so it has a state even where its input comes in any order.
        by_index: its elements can be accessed by index if those of its inputs can; the flow has a method `access`.
        as_they_are: it passes elements of its inputs on unchanged without reading their values, so batches on a GPU
            stay there. Not a cache: that holds its elements for as long as the dataset lives, and the memory of a GPU
            is for the model, unless the user says otherwise (`GpuCache`).
        as_long: it ends only if its input ends.
        flattens: it yields the elements of datasets that are made of its input's elements.
        in_memory: its elements are in memory for as long as the dataset lives.
        keeps_rows: it neither holds nor drops elements, so the number of shards below it may change.
        gathers: it holds elements and, under ``on_error="replace"``, a good one that no state includes.
        uncounted: how many elements it yields is known only by running it.
        work: what the thread that asks it for elements does in it, for profiles: a "step" of its own, wait at a "queue"
            that another thread fills, read "storage", or run the user's "python".
        may_stall: it may take elements forever and yield none, and does not check the clock itself; a step that does
            saves 0.1 us per element.
    """

    name: str = ""
    payload: Literal["reads", "passes", "holds"] = "passes"
    holds_nothing: bool = False
    by_index: bool = False
    as_they_are: bool = False
    as_long: bool = False
    flattens: bool = False
    in_memory: bool = False
    keeps_rows: bool = False
    gathers: bool = False
    uncounted: bool = False
    work: Literal["step", "queue", "storage", "python"] = "step"
    may_stall: bool = False


@dataclass(frozen=True, slots=True)
class Buffer:
    """The buffer of a step.

    Attributes:
        step: the step in words, for reports.
        elements: how many it holds at most; None where that is not known before the data is read.
        sized: an element in it has the size of one of the step's input.
    """

    step: str
    elements: int | None
    sized: bool = True


class _Watched:
    """What weak references can be made to."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node(_Watched):
    """One step of a chain. Subclasses add inputs and parameters, and override what differs from the defaults here.

    Class attributes:
        facts: what is true of every node of the class; each class has its own.
        located: fields that only say where it runs: in which directory its files are, on which of several ranks.

    Attributes:
        line: where the user wrote it; never compared.
        element: the type of the elements.
        cardinality: how many there are, `INFINITE` or `UNKNOWN_CARDINALITY`.
        branch: the most repeats and nodes with several inputs on one path from a source to this node, itself included.
        branches: the number of inputs of concatenations and mixtures that elements come from, nested ones included.
        random_calls: for each op, how many random calls the chain has so far.
        fingerprint: equal for equal chains.
    """

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Node.__repr__  # type: ignore[method-assign]  # `dataclass` keeps an existing one

    def __repr__(self) -> str:
        return cut(f"<{type(self).__name__} {self.describe()}, at {self.line}>")

    facts: ClassVar[Facts]
    located: ClassVar[tuple[str, ...]] = ()

    line: str = field(default_factory=call_site)
    element: ElementType = field(init=False)
    cardinality: int = field(init=False)
    branch: int = -1
    branches: int = field(init=False)
    random_calls: tuple[tuple[str, int], ...] = field(init=False)
    fingerprint: bytes = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        sources = self.sources
        if self.branch < 0:  # a rewrite keeps the number of the user's chain: keys in a zip depend on it
            put(self, "branch", self._branch(max((source.branch for source in sources), default=0)))
        put(self, "branches", self._branches([source.branches for source in sources]))
        put(self, "random_calls", self._random_calls(_most(sources)))
        inputs = [source.element for source in sources]
        known = all(element.structure is not None for element in inputs)
        put(self, "element", self.infer(*inputs) if known else self.declared())
        put(self, "cardinality", self._cardinality())
        put(self, "fingerprint", digest_of(type(self).__name__, *self._identity()))

    @property
    def sources(self) -> tuple[Node, ...]:
        """The nodes that this one reads from."""
        return ()

    def with_sources(self, sources: Sequence[Node]) -> Node:
        """This step on other inputs."""
        return self

    def _identity(self) -> Iterator[Any]:
        """The parts of the fingerprint: every parameter, and the fingerprints of the inputs."""
        for _, value in self.parameters():
            if isinstance(value, Node):
                yield value.fingerprint
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                yield tuple(node.fingerprint for node in value)
            else:
                yield value

    def infer(self, *inputs: ElementType) -> ElementType:
        """The type of the elements, given the inputs' types; called again once first elements have told those."""
        return inputs[0]

    def declared(self) -> ElementType:
        """The type of the elements as far as it is known while an input's structure is not."""
        return ANYTHING

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY if self.facts.uncounted else self.sources[0].cardinality

    def _branch(self, below: int) -> int:
        return below

    def _branches(self, below: Sequence[int]) -> int:
        return max(below, default=1)

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return below

    @property
    def name(self) -> str:
        """The method as the user wrote it."""
        return self.facts.name or re.sub("(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def describe(self) -> str:
        """The step and its parameters, one line."""
        return self.name

    @property
    def payload(self) -> str:
        """Whether it "reads" payloads of records, "passes" them on or "holds" the elements; see `Facts`."""
        return self.facts.payload

    @property
    def holds_elements(self) -> bool:
        """Whether it holds input elements other than records between two of its own; see `Facts.holds_nothing`."""
        return not self.facts.holds_nothing

    @property
    def by_index(self) -> bool:
        """Whether its elements can be accessed by index if those of its inputs can."""
        return self.facts.by_index

    @property
    def same_leaves(self) -> bool:
        """Whether it passes the leaves of its one input on unchanged: a step that makes others overrides `infer`."""
        return len(self.sources) == 1 and type(self).infer is Node.infer

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The leaves that a traced map computes; none for other steps."""
        return ()

    @property
    def made(self) -> Node | None:
        """The traced plan of the function that makes a dataset of each element, if it has one."""
        return None

    @property
    def makes_datasets(self) -> bool:
        """Whether a function makes datasets at run time, of which the plan knows nothing."""
        return False

    @property
    def shuffles(self) -> bool:
        """Whether it yields the elements of its input in a random order."""
        return False

    @property
    def draws(self) -> bool:
        """Whether it draws different numbers in each epoch, as far as is known without reading data."""
        return False

    def parameters(self, paths: bool = True) -> Iterator[tuple[str, Any]]:
        """The names and values of the fields that say what a node does, its inputs among them.

        Args:
            paths: include the fields that say where it runs (`located`).
        """
        chosen = (f.name for f in fields(self) if f.compare and f.name not in DERIVED)
        return ((name, getattr(self, name)) for name in chosen if paths or name not in self.located)

    def full(self, settings: Settings) -> bool:
        """Whether its input is no longer needed."""
        return False

    def input_context(self, at: Any, index: int) -> Any:
        """The flow context in which input number `index` is opened when this node is opened in `at`."""
        return at

    def named_files(self) -> NamedFiles:
        """The files that it names."""
        return NamedFiles()

    def resume_cost(self, settings: Settings) -> str:
        """The work it repeats after `load_state_dict`, in words; "" where it continues at its position."""
        if self.facts.gathers and settings.on_error == "replace":
            return 'reads its elements again from the start of the pass, under on_error="replace"'
        return ""

    def buffer(self, settings: Settings) -> Buffer | None:
        """The buffer of the step, unless it is a cache or part of a stage; None if it has none."""
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@dataclass(frozen=True, slots=True, eq=False)
class Step(Node):
    """A node with one input."""

    source: Node

    @property
    def sources(self) -> tuple[Node, ...]:
        return (self.source,)

    def with_sources(self, sources: Sequence[Node]) -> Node:
        return replace(self, source=sources[0])


def draws(root: Node) -> bool:
    """Whether a chain draws different numbers in each epoch, as far as is known without reading data."""
    return any(node.draws for node in walk(root))


def _most(sources: Sequence[Node]) -> tuple[tuple[str, int], ...]:
    """The largest count of any input, for each op."""
    if len(sources) == 1:
        return sources[0].random_calls
    merged: dict[str, int] = {}
    for source in sources:
        for name, count in source.random_calls:
            merged[name] = max(merged.get(name, 0), count)
    return tuple(sorted(merged.items()))


def epoch_key(root: Node) -> bytes:
    """Digest a chain so that chains written alike are equal: the epochs of a loop are counted by this key.

    A chain that is built again in every iteration of a loop has new lambdas, partials and callable objects; they count
    as the earlier ones if they look the same.
    """
    parts: list[Any] = []
    for node in walk(root):
        parts.append(type(node).__name__)
        if node.located and not node.sources:  # a list of files, which may be long, and its digest is known
            parts.append(node.fingerprint)
            continue
        for _, value in node.parameters():
            many = isinstance(value, tuple) and value and isinstance(value[0], Node)
            if not many and not isinstance(value, (Node, Traced)):
                parts.append(value)
    return digest_of(parts, loose=True)


def walk(root: Node, stop: Callable[[Node], bool] = lambda node: False) -> list[Node]:
    """List every node of a chain once, inputs before users, without recursion; none below a node that `stop`s."""
    seen: set[int] = set()
    order: list[Node] = []
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if not stop(node):
                stack.extend((source, False) for source in reversed(node.sources))
    return order
