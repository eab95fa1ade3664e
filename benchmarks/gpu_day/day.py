"""day: the circumstances that every part is told: whether it is a dry run, its folders, its sizes."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import cores

__all__ = ["ROOT", "Day"]

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Day:
    """The circumstances of all parts.

    Attributes:
        dry: work on the CPU with few images, to test the parts themselves.
        has_gpu: whether the driver reports a card.
        out: folder of the results.
        folder: folder for temporary files.
        until: `time.monotonic()` at which the process of a part is ended at the latest.
    """

    dry: bool
    has_gpu: bool
    out: str
    folder: str
    until: float = math.inf

    @property
    def device(self) -> str:
        """The device of `gpupipe.Options`."""
        return "cpu" if self.dry else "gpu"

    @property
    def decoder(self) -> str:
        """The device of DALI's decoders."""
        return "cpu" if self.dry else "mixed"

    @property
    def batch(self) -> int:
        """Images in a batch."""
        return 4 if self.dry else 256

    @property
    def threads(self) -> int:
        """CPU threads of a pipeline."""
        return min(16, cores())

    def some(self, many: int, few: int) -> int:
        """Return `many`, in a dry run `few`."""
        return few if self.dry else many

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a process that a part starts, in which this checkout can be imported."""
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        return {**os.environ, "PYTHONPATH": path, **more}

    def to_json(self) -> str:
        """Write the day as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Day:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)
