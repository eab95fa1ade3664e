"""outline: a chain as a list of steps that a later process can compare with its own, to name the one that differs.

Unlike in `portable`, functions count by name and objects by class: code may be edited between saving a state and
resuming from it. Files are listed apart, since the same steps may read other files.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from ..classes import dataclass
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
    """

    steps: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    sizes: Mapping[str, int]


def outline(root: Node, ranks: bool = False) -> Outline:
    """List the steps of a chain. Who makes its elements, a rank or a worker, is none: each takes over a state.

    Args:
        root: the chain.
        ranks: whether `by_rank` counts as a step.
    """
    steps: list[tuple[str, str]] = []
    lines: list[str] = []
    files: list[tuple[str, str]] = []
    sizes: dict[str, int] = {}
    for node, below in numbered(root, ranks):
        walker = _Named(ranks)
        walker.step(node, below)
        files += walker.files
        sizes |= {**walker.sizes, **node.known_sizes()}
        # The number of files is compared apart, and their directory does not matter.
        text = node.name if node.located else node.describe()
        steps.append((text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...", walker.hasher.hexdigest()[:12]))
        lines.append(node.line)
    return Outline(tuple(steps), tuple(lines), tuple(dict(files).items()), sizes)


class _Named(Walker):
    """Digests a step; functions by name, objects by class."""

    def __init__(self, ranks: bool) -> None:
        super().__init__(paths=False, ranks=ranks)
        self.sizes: dict[str, int] = {}

    def _plan(self, root: Node) -> None:
        inner = outline(root, self.ranks)
        self.files.extend(inner.files)
        self.sizes.update(inner.sizes)
        self._put(f"chain {[digest for _, digest in inner.steps]}")

    def _function(self, fn: types.FunctionType) -> None:
        self._put(f"function {fn.__module__}.{fn.__qualname__}")

    def _class(self, kind: type[Any]) -> None:
        self._put(f"class {kind.__module__}.{kind.__qualname__}")

    def _state(self, part: Any) -> None:
        self._put(f"object {type(part).__module__}.{type(part).__qualname__}")
