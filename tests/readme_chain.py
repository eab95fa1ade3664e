"""readme_chain: the chain of the README as a program that needs gpupipe alone, for environments that were just made."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SAYS", "program"]

ROOT = Path(__file__).resolve().parent.parent

BEFORE = """\
import os
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # what is installed here is for a CPU
from gpupipe.comparison.photographs import write_shards

Path("drawn").mkdir()
write_shards(Path("drawn"), 256, 2)
kept = []
"""

AFTER = """
(a, x), (b, y) = kept
assert (x == y).all() and abs(a - b).mean() < 0.05  # executors interpolate in their own ways, within a level or so
print("two batches:", a.shape, b.shape)
"""

SAYS = "two batches: (256, 224, 224, 3) (256, 224, 224, 3)\n"


def program() -> str:
    """Python that draws photographs, runs both loops of the README's first block on them, and prints `SAYS`."""
    chain = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    chain = chain.replace('"train-*.tfrecord"', '"drawn/photos-*.tfrecord"')
    return BEFORE + chain.replace("    ...\n", "    kept.append((images, labels))\n") + AFTER
