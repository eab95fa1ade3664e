"""report: the profile of a chain, as a table, as JSON, as a picture."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, field

from ..brief import cut
from ..classes import dataclass
from ..load.stats import QueueStats, queue_table
from ..load.table import table
from ..timing import Span
from .measure import Measurement
from .model import Model, Part
from .verdict import Verdict, advice, judge

__all__ = ["Profile", "profile_of"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a chain goes, over some steps of a loop.

    Attributes:
        steps: elements that the loop took in the measured window.
        rows: of these; as many as steps if they are not batches.
        startup: seconds to the first element, before the window.
        seconds: of the window.
        waiting: the seconds of these that the loop waited for data.
        cpu_seconds: CPU time of this process and its workers, the loop's own work included.
        cores: CPUs that the process may use.
        parts: the work of each step on each thread, pool or executor, in seconds for each step of the loop.
        queues: queues of finished elements, since the start.
        verdict: the bottleneck, and what mending it would give.
        own_share: the share of the window's CPU time that measuring itself took; it is left out of `parts`.
        spans: what each thread did when, for `plot` and `chrome_trace`: at most 100,000.
        dropped: spans beyond these.
    """

    steps: int
    rows: int
    startup: float
    seconds: float
    waiting: float
    cpu_seconds: float
    cores: int
    parts: tuple[Part, ...]
    queues: tuple[QueueStats, ...]
    verdict: Verdict
    own_share: float
    spans: tuple[Span, ...] = field(repr=False)
    dropped: int = 0

    @property
    def waiting_share(self) -> float:
        """The share of the loop's time, from 0 to 1, that it waited for data."""
        return self.waiting / self.seconds

    @property
    def rows_per_second(self) -> float:
        """Rows delivered in a second."""
        return self.rows / self.seconds

    @property
    def cpu_ms_per_row(self) -> float:
        """CPU milliseconds for each row."""
        return self.cpu_seconds / self.rows * 1e3 if self.rows else 0.0

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = ("step", "on", "elements", "busy ms", "CPU ms", "waiting ms", "line")
        rows: list[Sequence[str]] = []
        shown = [part for part in self.parts if part.elements or part.seconds + part.waiting > 1e-5]
        for part in sorted(shown, key=lambda part: -part.seconds):
            times = (f"{value * 1e3:.2f}" for value in (part.seconds, part.cpu, part.waiting))
            rows.append(
                (cut(part.step, 56), part.resource, f"{part.elements:,.4g}" if part.elements else "", *times, part.line)
            )
        verdict = self.verdict
        return "\n".join([
            f"{self.steps:,} steps in {self.seconds:.2f} s, {self.rows_per_second:,.0f} rows/s; the loop waited "
            f"{self.waiting_share:.0%} of the time; {self.cpu_ms_per_row:.2f} CPU-ms a row, "
            f"{self.cpu_seconds / self.seconds:.1f} of {self.cores} CPUs busy; measuring took {self.own_share:.1%}",
            str(verdict),
            *(f"  {line}" for line in map(str, verdict.others) if line),
            *([f"  what usually helps: {advice(verdict)}"] if advice(verdict) else []),
            "for each step of the loop:",
            table(head, rows, right=range(1, 6)),
            *([queue_table(self.queues)] if self.queues else ()),
        ])  # fmt: skip

    def json(self) -> str:
        """The profile as JSON, without the spans."""
        fields = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("spans", "queues", "parts", "verdict")
        }
        document = {
            **fields,
            "waiting_share": self.waiting_share,
            "rows_per_second": self.rows_per_second,
            "cpu_ms_per_row": self.cpu_ms_per_row,
            "verdict": {**asdict(self.verdict), "text": str(self.verdict)},
            "parts": [asdict(part) for part in self.parts],
            "queues": [asdict(queue) for queue in self.queues],
        }
        return json.dumps(document, indent=1)

    def chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that ``chrome://tracing`` and https://ui.perfetto.dev show: a row for each step and thread."""
        from .trace import chrome_trace

        chrome_trace(self.spans, path)

    def plot(self, path: str | os.PathLike[str], seconds: float | None = None) -> None:
        """Draw a timeline: a row for each step and thread, time to the right.

        More than three threads of one pool share rows, as many as worked at the same time.

        Args:
            path: the file; its suffix says which format (.png, .svg, .pdf), without one it is a PNG.
            seconds: draw the last so many seconds; by default all from the start.

        Raises:
            MissingDependencyError: matplotlib is not installed.
            PlanError: matplotlib writes no such format, or `seconds` is no positive number.
            OSError: the file cannot be written; an older one is unchanged.
        """
        from .picture import plot

        plot(self.spans, str(self.verdict).partition("\n")[0], path, seconds)


def profile_of(measured: Measurement) -> Profile:
    """Interpret a measurement."""
    model = Model(measured)
    before, after = measured.stats
    workers = sum(one.cpu_seconds for one in after.steps if one.processes)
    workers -= sum(one.cpu_seconds for one in before.steps if one.processes)
    return Profile(
        steps=len(measured.turns),
        rows=measured.rows,
        startup=measured.startup,
        seconds=measured.seconds,
        waiting=measured.waiting,
        cpu_seconds=measured.cpu + workers,
        cores=measured.cores,
        parts=tuple(model.parts),
        queues=after.queues,
        verdict=judge(model),
        own_share=measured.own / measured.cpu if measured.cpu > 0 else 0.0,
        spans=tuple(
            span._replace(start=span.start - measured.origin, end=span.end - measured.origin) for span in measured.spans
        ),
        dropped=measured.dropped,
    )
