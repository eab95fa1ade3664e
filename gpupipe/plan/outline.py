"""outline: a chain as a list of steps that a later process can compare with its own, and say which one is another.

Unlike `portable`, functions count by their names and objects by their classes: what a state goes on with may have been
edited in between. Files are apart: which they are is another question than which steps there are.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, fields
from typing import Any

from .files import Saved
from .node import DERIVED, Node, walk
from .portable import _Walker
from .sources import Files, Slices, Tensors
from .steps import WithOptions

__all__ = ["Outline", "outline"]

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Outline:
    """The steps of a chain.

    Attributes:
        steps: of each step, inputs before users, what it is in words and a digest of its parameters.
        lines: where the user wrote them.
        files: the files that the chain names.
    """

    steps: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    files: tuple[str, ...]


def outline(root: Node) -> Outline:
    """List the steps of a chain."""
    steps: list[tuple[str, str]] = []
    lines: list[str] = []
    files: list[str] = []
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
        text = node.name if isinstance(node, (Files, Saved)) else node.describe()  # how many files is said apart
        steps.append((text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...", walker.hasher.hexdigest()[:12]))
        lines.append(node.line)
    return Outline(tuple(steps), tuple(lines), tuple(dict.fromkeys(files)))


class _Named(_Walker):
    """Digests a step; functions by name, objects by class."""

    def step(self, node: Node, below: list[int]) -> None:
        """Digest one step, without its inputs."""
        self._put(f"{type(node).__name__} {node.number} {below}")
        skipped = self._named_files(node)
        traced = getattr(node, "traced", None) is not None or getattr(node, "inner", None) is not None
        for f in fields(node):
            if f.name in DERIVED or not f.compare or f.name in skipped or (f.name == "fn" and traced):
                continue
            value: Any = getattr(node, f.name)
            nodes = value if isinstance(value, tuple) else (value,)
            if nodes and all(isinstance(one, Node) for one in nodes):
                value = [one for one in nodes if not any(one is source for source in node.sources)]
            self.add((f.name, value))

    def _named_files(self, node: Node) -> tuple[str, ...]:
        """Note the files that a step names; the answer is which of its fields say nothing else."""
        match node:
            case Files(paths=paths):
                self.files.extend(paths)
                return ("paths", "names")
            case Saved(paths=paths):
                self.files.extend(paths)
                return ("paths", "folder", "run")
            case Slices(leaves=leaves, names=names) if names is not None:
                self.files.extend(path.decode(errors="surrogateescape") for path in leaves[0])
                self.add(leaves[1:])
                return ("leaves",)
            case Tensors(leaves=leaves):
                texts = [leaf for leaf in leaves if isinstance(leaf, bytes) and len(leaf) < 4096 and 0 not in leaf]
                self.files.extend(text.decode(errors="surrogateescape") for text in texts)
        return ()

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
