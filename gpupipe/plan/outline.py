"""outline: a chain as a list of steps that a later process can compare with its own, to name the one that differs.

Unlike in `portable`, functions count by name and objects by class: code may be edited between saving a state and
resuming from it. Files are listed apart, since the same steps may read other files.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..classes import dataclass
from .named_files import NamedFiles, has_queries, merged
from .node import Node
from .portable import Walker, numbered
from .read_files import unread_texts

__all__ = ["Outline", "outline"]

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Outline:
    """The steps of a chain.

    Attributes:
        steps: for each step, inputs before users, its description and a digest of its parameters.
        lines: where the user wrote them.
        files: the files that the chain names.
        queries: whether a URL has a user or a query, so that not all of it identifies the file.
    """

    steps: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    files: NamedFiles
    queries: bool = False


def outline(
    root: Node, ranks: bool = False, signing: Sequence[str] = (), unread: frozenset[int] | None = None
) -> Outline:
    """List the steps of a chain. Who makes its elements, a rank or a worker, is none: each takes over a state.

    Args:
        root: the chain.
        ranks: whether `by_rank` counts as a step.
        signing: `Options.signing_parameters`.
        unread: of an inner chain, what `unread_texts` says of the whole one.
    """
    unread = unread_texts(root) if unread is None else unread
    steps: list[tuple[str, str]] = []
    lines: list[str] = []
    files: list[NamedFiles] = []
    queries = False
    for node, below in numbered(root, ranks):
        walker = _Named(ranks, signing, unread)
        walker.step(node, below)
        files += walker.files
        queries = queries or walker.queries or any(map(has_queries, walker.files))
        # The number of files is compared apart, and their directory does not matter.
        text = node.name if node.located else node.describe()
        steps.append((text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...", walker.hasher.hexdigest()[:12]))
        lines.append(node.line)
    return Outline(tuple(steps), tuple(lines), merged(files).without(signing), queries)


class _Named(Walker):
    """Digests a step; functions by name, objects by class."""

    def __init__(self, ranks: bool, signing: Sequence[str], unread: frozenset[int]) -> None:
        super().__init__(paths=False, ranks=ranks, signing=signing)
        self._unread = unread

    def step(self, node: Node, below: list[int]) -> None:
        super().step(node, below)
        if id(node) in self._unread:
            self.files = [replace(files, read=False) for files in self.files]

    def _plan(self, root: Node) -> None:
        inner = outline(root, self.ranks, self.signing, self._unread)
        self.files.append(inner.files)
        self._put(f"chain {[digest for _, digest in inner.steps]}")

    def _function(self, fn: types.FunctionType) -> None:
        self._put(f"function {fn.__module__}.{fn.__qualname__}")

    def _class(self, kind: type[Any]) -> None:
        self._put(f"class {kind.__module__}.{kind.__qualname__}")

    def _state(self, part: Any) -> None:
        self._put(f"object {type(part).__module__}.{type(part).__qualname__}")
