"""readme_chain: the chain of the README as a program that needs gpupipe alone, for environments that were just made."""

from __future__ import annotations

from pathlib import Path

from gpupipe.comparison.photographs import write_shards

__all__ = ["SAYS", "draw", "program"]

ROOT = Path(__file__).resolve().parent.parent
BATCH = 256

BEFORE = """\
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # what is installed here is for a CPU
kept = []
"""

AFTER = """
(a, x), (b, y) = kept
assert (x == y).all() and abs(a - b).mean() < 0.05  # executors interpolate in their own ways, within a level or so
print("two batches:", a.shape, b.shape)
"""

SAYS = "two batches: (256, 224, 224, 3) (256, 224, 224, 3)\n"


def draw(folder: Path) -> Path:
    """Write photographs for one batch of the chain into a new folder."""
    folder.mkdir()
    write_shards(folder, BATCH, 2)
    return folder


def program(folder: Path) -> str:
    """Python that runs both loops of the README's first block on the photographs in a folder, and prints `SAYS`."""
    chain = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    chain = chain.replace('"train-*.tfrecord"', repr(f"{folder}/photos-*.tfrecord"))
    return BEFORE + chain.replace("    ...\n", "    kept.append((images, labels))\n") + AFTER
