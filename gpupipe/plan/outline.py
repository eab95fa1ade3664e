"""outline: a chain as a list of steps that a later process can compare with its own, to name the one that differs.

Unlike in `portable`, functions count by name and objects by class: code may be edited between saving a state and
resuming from it. Files are listed apart, since the same steps may read other files.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from ..classes import dataclass
from ..urls import identity, without_parameters
from .node import Node
from .portable import Walker, numbered

__all__ = ["Outline", "outline"]

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Outline:
    """The steps of a chain.

    Attributes:
        steps: for each step, inputs before users, its description and a digest of its parameters.
        lines: where the user wrote them.
        files: the files that the chain names: each path, and the name that identifies it in any directory.
        sizes: the bytes of those of them whose sizes the chain knows, by path.
        queries: whether a URL has a user or a query, so that not all of it identifies the file.
    """

    steps: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    sizes: Mapping[str, int]
    queries: bool = False


def outline(root: Node, ranks: bool = False, signing: Sequence[str] = ()) -> Outline:
    """List the steps of a chain. Who makes its elements, a rank or a worker, is none: each takes over a state.

    Args:
        root: the chain.
        ranks: whether `by_rank` counts as a step.
        signing: `Options.signing_parameters`.
    """
    steps: list[tuple[str, str]] = []
    lines: list[str] = []
    files: list[tuple[str, str]] = []
    sizes: dict[str, int] = {}
    queries = False
    for node, below in numbered(root, ranks):
        walker = _Named(ranks, signing)
        walker.step(node, below)
        files += [(path, without_parameters(name, signing)) for path, name in walker.files]
        queries = queries or walker.queries or any(identity(path) != path for path, _ in walker.files)
        sizes |= {**walker.sizes, **node.known_sizes()}
        # The number of files is compared apart, and their directory does not matter.
        text = node.name if node.located else node.describe()
        steps.append((text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...", walker.hasher.hexdigest()[:12]))
        lines.append(node.line)
    return Outline(tuple(steps), tuple(lines), tuple(dict(files).items()), sizes, queries)


class _Named(Walker):
    """Digests a step; functions by name, objects by class."""

    def __init__(self, ranks: bool, signing: Sequence[str]) -> None:
        super().__init__(paths=False, ranks=ranks, signing=signing)
        self.sizes: dict[str, int] = {}

    def _plan(self, root: Node) -> None:
        inner = outline(root, self.ranks, self.signing)
        self.files.extend(inner.files)
        self.sizes.update(inner.sizes)
        self._put(f"chain {[digest for _, digest in inner.steps]}")

    def _function(self, fn: types.FunctionType) -> None:
        self._put(f"function {fn.__module__}.{fn.__qualname__}")

    def _class(self, kind: type[Any]) -> None:
        self._put(f"class {kind.__module__}.{kind.__qualname__}")

    def _state(self, part: Any) -> None:
        self._put(f"object {type(part).__module__}.{type(part).__qualname__}")
