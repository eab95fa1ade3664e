"""The saved corpus: what it is, and which branches of the parsers it reaches.

`python -m tests.fuzz.replay` prints, as JSON, the branches of each parser that it reaches and the memory that took.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import coverage

__all__ = ["CORPUS", "PARSERS", "TARGETS", "arcs", "branches", "inputs", "target"]

CORPUS = Path(__file__).parent / "corpus"

TARGETS: dict[str, tuple[str, ...]] = {
    "framing": ("gpupipe.extract.records.framing",),
    "files": (
        "gpupipe.extract.records.framing",
        "gpupipe.extract.records.tfrecord",
        "gpupipe.extract.records.inflate",
        "gpupipe.extract.records.walk",
    ),
    "example": ("gpupipe.extract.examples.example", "gpupipe.extract.examples.wire"),
    "columns": ("gpupipe.serial.columns",),
    "headers": (
        "gpupipe.extract.images.headers",
        "gpupipe.extract.images.jpeg",
        "gpupipe.extract.images.png",
        "gpupipe.extract.images.pillow",
        "gpupipe.extract.images.exif",
    ),
    "archives": (
        "gpupipe.extract.shards.header",
        "gpupipe.extract.shards.members",
        "gpupipe.extract.shards.names",
        "gpupipe.extract.shards.samples",
    ),
    "ipc": ("gpupipe.extract.tables.ipc",),
}
"""Name of a target -> the modules that it is about."""

PARSERS: dict[str, dict[str, tuple[str, ...]]] = {
    "framing": {"framing": (), "tfrecord": (), "inflate": (), "walk": ()},
    "example": {
        "example": ("ExampleParser.parse", "ExampleParser._*", "_*"),
        "wire": ("varint", "fields", "varints", "_decoded"),
        "columns": ("Cursor.*", "read_column", "_numbers", "_dtype", "_shape"),
    },
    "headers": {"headers": (), "jpeg": (), "png": (), "pillow": (), "exif": ()},
    "archives": {"header": (), "members": ()},
}
"""Parser -> its modules and the functions of each that bytes of a file reach; () are all.

Left out: what builds a parser from the user's description (`ExampleParser.__init__`, `select`, the module features),
what writes (`encode_varint`, `add_column`), and what keeps and saves indexes, which reads no records.
"""


def target(name: str) -> Callable[..., None]:
    """The function of a target."""
    one: Callable[..., None] = importlib.import_module(f"tests.fuzz.{name}").one
    return one


def inputs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each input in a folder."""
    for path in sorted(folder.iterdir()):
        yield path.name, path.read_bytes()


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


def branches() -> dict[str, Any]:
    """Of each parser: how many branches it has, how many the corpus reaches, and the lines of the others."""
    package = Path(__file__).parents[2] / "gpupipe"
    with recorded([f"{package}/extract/*", f"{package}/serial/*"]) as seen:
        for name in TARGETS:
            one = target(name)
            for _, data in inputs(CORPUS / name):
                one(data)
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "report.json")
        seen.json_report(outfile=report)
        with open(report, encoding="utf-8") as file:
            files = {Path(name).stem: found["functions"] for name, found in json.load(file)["files"].items()}
    out = {}
    for parser, modules in PARSERS.items():
        functions = [
            (module, name, found)
            for module, chosen in modules.items()
            for name, found in files[module].items()
            if name and (not chosen or any(fits(name, pattern) for pattern in chosen))
        ]
        out[parser] = {
            "branches": sum(found["summary"]["num_branches"] for _, _, found in functions),
            "reached": sum(found["summary"]["covered_branches"] for _, _, found in functions),
            "others": [
                f"{module}.{name} {found['missing_branches']}"
                for module, name, found in functions
                if found["missing_branches"]
            ],
        }
    return out


def fits(name: str, pattern: str) -> bool:
    """Whether a function is meant; a private one includes those inside it."""
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1]) and "__init__" not in name
    return name == pattern


def peak_memory() -> int | None:
    """The most memory this process had at once, in MB; None where nobody can tell."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere a process that was forked begins with what its parent had
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) >> 10
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most >> (20 if sys.platform == "darwin" else 10)


if __name__ == "__main__":
    print(json.dumps({"parsers": branches(), "peak": peak_memory()}, indent=1))
