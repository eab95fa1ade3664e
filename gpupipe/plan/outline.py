"""outline: a chain as a list of steps that a later process can compare with its own, and say which one is another.

Unlike `portable`, functions count by their names and objects by their classes: what a state goes on with may have been
edited in between. Files are apart: which they are is another question than which steps there are.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, fields
from typing import Any

from .files import FileCache, Saved
from .node import DERIVED, Node, walk
from .portable import _Walker
from .sources import Files
from .steps import WithOptions

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
    numbers: dict[int, int] = {}
    for node in walk(root):
        below = [numbers[id(source)] for source in node.sources]
        if isinstance(node, WithOptions):  # how a chain runs is compared apart
            numbers[id(node)] = below[0]
            continue
        numbers[id(node)] = len(steps)
        walker = _Named()
        walker.step(node, below)
        files += walker.files
        # How many files is said apart, and where they lie does not matter.
        text = node.name if isinstance(node, (Files, Saved, FileCache)) else node.describe()
        steps.append((text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...", walker.hasher.hexdigest()[:12]))
        lines.append(node.line)
    return Outline(tuple(steps), tuple(lines), tuple(dict(files).items()))


class _Named(_Walker):
    """Digests a step; functions by name, objects by class."""

    def __init__(self) -> None:
        super().__init__(places=False)

    def step(self, node: Node, below: list[int]) -> None:
        """Digest one step, without its inputs."""
        self._put(f"{type(node).__name__} {node.number} {below}")
        skipped = self._note_files(node)
        traced = getattr(node, "traced", None) is not None or getattr(node, "inner", None) is not None
        for f in fields(node):
            if f.name in DERIVED or not f.compare or f.name in skipped or (f.name == "fn" and traced):
                continue
            value: Any = getattr(node, f.name)
            nodes = value if isinstance(value, tuple) else (value,)
            if nodes and all(isinstance(one, Node) for one in nodes):
                value = [one for one in nodes if not any(one is source for source in node.sources)]
            self.add((f.name, value))

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
