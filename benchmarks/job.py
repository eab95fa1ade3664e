"""job: the work of one contestant in one process, and its report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["FLOWER", "IMAGENET_MEAN", "IMAGENET_STD", "SHIFT", "SIDE", "SIZE", "Audit", "Job", "Run"]

# In units of the pixels, 0..255. Not imported, so that no contestant depends on another's package.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
SIZE = 224
SIDE = 256
"""The shorter side of an image of which the square in the middle is cut out."""

FLOWER = 180
"""Side of the images of `benchmarks.flowers`, in pixels."""
SHIFT = 18
"""The most by which one of them is shifted, up or down and to either side."""

Mode = Literal[
    "measure",
    "audit",
    "damaged",
    "memory",
    "host",
    "host-audit",
    "flowers",
    "flowers-audit",
    "cifar",
    "cifar-audit",
    "training",
]


@dataclass(frozen=True, slots=True)
class Job:
    """One process's work.

    Attributes:
        contestant: a name in `benchmarks.contestants.CONTESTANTS`.
        files: TFRecord shards; a file listed k times is read k times in one pass.
        mode: "measure" times a window; "audit" runs one pass and describes its output; "damaged" expects an error
            about a record with a wrong checksum in the files; "memory" runs a pass without the shuffle buffer to
            settle, then one with it, and reports what the second added; "host" times one pass of a chain of
            `benchmarks.host`, "host-audit" describes its output; "cifar" times `batches` epochs after a first one;
            "training" sleeps `step` after each batch and reports the share of the window that it waited.
        batch: rows in a batch.
        threads: CPU threads (or worker processes) the contestant may use for its main work.
        warmup: batches taken before the window starts.
        batches: batches in the window.
        shuffle: records in the shuffle buffer.
        cycle: files read concurrently.
        seed: for contestants whose randomness can be seeded.
        chain: a name in `benchmarks.host.CHAINS`, for the host modes.
        elements: numbers that enter that chain.
        prefetch: batches that are prefetched, 0 for none.
        step: seconds of a training step.
        checkout: a folder whose gpupipe is run instead of the one beside the benchmarks, "" for that one.
        timeout: seconds after which the process is killed.
        started: `time.monotonic()` of the parent just before the process was started, in seconds.
    """

    contestant: str
    files: tuple[str, ...]
    mode: Mode = "measure"
    batch: int = 64
    threads: int = 2
    warmup: int = 10
    batches: int = 40
    shuffle: int = 1000
    cycle: int = 8
    seed: int = 0
    chain: str = ""
    elements: int = 0
    prefetch: int = 0
    step: float = 0.0
    checkout: str = ""
    timeout: float = 600.0
    started: float = 0.0

    def to_json(self) -> str:
        """Write the job as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read a job written by `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "files": tuple(fields["files"])})


@dataclass(frozen=True, slots=True)
class Run:
    """The measurements of one process.

    Attributes:
        contestant: its name.
        items: images (or records) delivered inside the window.
        seconds: wall time of the window.
        cpu_seconds: user and system time of the whole process tree inside the window.
        first_batch_s: from the start of the contestant's own code (after its imports) to its first batch.
        start_s: from the start of the process to the first batch, imports included.
        peak_rss_mb: the largest sum of resident memory over the process tree, file pages included, in 1e6 bytes.
        shape: shape of the last batch.
        dtype: dtype of the last batch.
        first_cpu_seconds: user and system time of the process tree up to the first batch, imports included; 0 where it
            is not measured.
    """

    contestant: str
    items: int
    seconds: float
    cpu_seconds: float
    first_batch_s: float
    start_s: float
    peak_rss_mb: float
    shape: tuple[int, ...]
    dtype: str
    first_cpu_seconds: float = 0.0

    @property
    def cpu_ms(self) -> float:
        """CPU-milliseconds per image."""
        return self.cpu_seconds / self.items * 1e3

    @property
    def rate(self) -> float:
        """Images per second."""
        return self.items / self.seconds


@dataclass(frozen=True, slots=True)
class Audit:
    """A description of a contestant's batches over one pass of the probe files; compared by `benchmarks.equal`.

    Attributes:
        contestant: its name.
        shape: shape of one batch.
        dtype: dtype of one batch.
        layout: "NHWC", "NCHW" or "records".
        counts: how often each label was delivered, as {times: number of labels}.
        figures: measured quantities by name: "share" (mean share of the image inside the crop window), "contrast"
            (what the resize filter leaves of fine stripes), "flipped" (share of mirrored images), "level" (mean of
            a channel whose true mean is 128, after the normalisation is undone), "bytes" and "digest" for records.
        errors: standard errors of figures that are means over random draws.
    """

    contestant: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    counts: dict[str, int]
    figures: dict[str, float]
    errors: dict[str, float] = field(default_factory=dict)
