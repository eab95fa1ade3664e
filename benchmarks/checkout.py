"""checkout: a process of these benchmarks whose `gpupipe`, with its `ops`, is that of another checkout.

Nothing else of that checkout is used, so that two commits run the same contestants. This imports no gpupipe: a process
imports it before it knows which one.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.process import environment

__all__ = ["ROOT", "place", "verify", "wrong"]

ROOT = Path(__file__).resolve().parent.parent
"""The checkout of these benchmarks."""


def wrong(folder: Path) -> str:
    """What a folder lacks to be a checkout of gpupipe, "" if nothing: its `ops` may be a link, or not."""
    lacks = [name for name in ("gpupipe", "gpupipe/ops") if not (folder / name / "__init__.py").is_file()]
    return f"needs the folder of a checkout that holds {' and '.join(lacks)}, got {folder}" if lacks else ""


@contextmanager
def place(checkout: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the working folder and the environment of a process whose gpupipe is that of a checkout.

    Python looks in the folder first, so it holds `benchmarks` and nothing else; then in the checkout, before installed
    packages. Processes that the product starts inherit both.

    Args:
        checkout: an absolute path, or "" for the checkout of these benchmarks.
    """
    variables = environment()
    if not checkout:
        yield str(ROOT), variables
        return
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        (Path(folder) / "benchmarks").symlink_to(ROOT / "benchmarks")
        paths = [folder, checkout, *filter(None, [variables.get("PYTHONPATH")])]
        yield folder, {**variables, "PYTHONPATH": os.pathsep.join(paths)}


def verify(checkout: str) -> None:
    """Check that the gpupipe and the `ops` that this process imports are those of a checkout; "" is any.

    Raises:
        ImportError: they are others, such as installed ones.
    """
    for name in ("gpupipe", "gpupipe.ops") if checkout else ():
        spec = importlib.util.find_spec(name)  # of what was imported already, if it was
        file = spec and spec.origin
        if not file or not Path(file).resolve().is_relative_to(Path(checkout).resolve()):
            raise ImportError(f"this run needs the {name} of {checkout}, got {file}; is another one installed?")
