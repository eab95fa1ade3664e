"""The saved corpus: what it is, and which branches of the parsers an input of it reaches."""

from __future__ import annotations

import contextlib
import importlib
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import coverage

__all__ = ["CORPUS", "TARGETS", "arcs", "inputs", "peak_of", "target"]

CORPUS = Path(__file__).parent / "corpus"

_OF_EXTRACT = {
    "framing": "records.framing",
    "files": "records.framing records.tfrecord records.inflate records.walk",
    "example": "examples.example examples.wire",
    "headers": "images.headers images.jpeg images.png images.pillow images.exif",
    "archives": "shards.header shards.members shards.names shards.samples",
    "ipc": "tables.ipc",
}
TARGETS = {name: tuple(f"gpupipe.extract.{module}" for module in of.split()) for name, of in _OF_EXTRACT.items()}
TARGETS["columns"] = ("gpupipe.serial.columns",)
"""Name of a target -> the modules that it is about."""


def target(name: str) -> Callable[..., None]:
    """The function of a target."""
    one: Callable[..., None] = importlib.import_module(f"tests.fuzz.{name}").one
    return one


def inputs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each input in a folder."""
    for path in sorted(folder.iterdir()):
        yield path.name, path.read_bytes()


def peak_of(call: Callable[[], object]) -> int:
    """Bytes of memory that a call takes at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def arcs(name: str, data: bytes) -> set[tuple[str, tuple[int, int]]]:
    """The arcs, as (file, (from line, to line)), that one input takes through the modules of a target."""
    one = target(name)
    with recorded([str(importlib.import_module(module).__file__) for module in TARGETS[name]]) as seen:
        one(data)
    found = seen.get_data()
    return {(file, arc) for file in found.measured_files() for arc in found.arcs(file) or ()}


@contextlib.contextmanager
def recorded(files: list[str]) -> Iterator[coverage.Coverage]:
    """Watch the branches of some files."""
    import coverage

    seen = coverage.Coverage(data_file=None, branch=True, include=files, config_file=False)
    seen.start()
    try:
        yield seen
    finally:
        seen.stop()
