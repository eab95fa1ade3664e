"""outline: a chain as a list of steps that a later process can compare with its own, and say which one is another.

Unlike `portable`, functions count by their names and objects by their classes: what a state goes on with may have been
edited in between. Files are apart: which they are is another question than which steps there are.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from .node import Node
from .portable import Walker, numbered

__all__ = ["Outline", "outline"]

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Outline:
    """The steps of a chain.

    Attributes:
        steps: of each step, inputs before users, what it is in words and a digest of its parameters.
        lines: where the user wrote them.
        files: paths of the files that the chain names, and what each is called wherever its folder lies.
    """

    steps: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


def outline(root: Node) -> Outline:
    """List the steps of a chain."""
    steps: list[tuple[str, str]] = []
    lines: list[str] = []
    files: list[tuple[str, str]] = []
    for node, below in numbered(root):
        walker = _Named()
        walker.step(node, below)
        files += walker.files
        # How many files is said apart, and where they lie does not matter.
        text = node.name if node.located else node.describe()
        steps.append((text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...", walker.hasher.hexdigest()[:12]))
        lines.append(node.line)
    return Outline(tuple(steps), tuple(lines), tuple(dict(files).items()))


class _Named(Walker):
    """Digests a step; functions by name, objects by class."""

    def __init__(self) -> None:
        super().__init__(places=False)

    def _plan(self, root: Node) -> None:
        """A chain that belongs to a step."""
        inner = outline(root)
        self.files.extend(inner.files)
        self._put(f"chain {[digest for _, digest in inner.steps]}")

    def _function(self, fn: types.FunctionType) -> None:
        self._put(f"function {fn.__module__}.{fn.__qualname__}")

    def _class(self, kind: type[Any]) -> None:
        self._put(f"class {kind.__module__}.{kind.__qualname__}")

    def _state(self, part: Any) -> None:
        self._put(f"object {type(part).__module__}.{type(part).__qualname__}")
