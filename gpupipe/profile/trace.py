"""trace: spans in the JSON format of Chrome's trace viewer."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from ..extract.storage.replacing import replacing
from ..timing import Span

__all__ = ["chrome_trace", "rows_of"]


def rows_of(spans: Sequence[Span]) -> dict[tuple[str, str], list[Span]]:
    """The spans of each row of a picture: of each thread and step, threads in the order in which they started.

    Two pools may have threads of one name; where such a thread's span begins before the last one ends, it has a row of
    its own.
    """
    threads = {thread: number for number, thread in enumerate(dict.fromkeys(span.thread for span in spans))}
    rows: dict[tuple[str, str], list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.start):
        thread, number = span.thread, 1
        while (last := rows.get((thread, span.step))) and last[-1].end > span.start:
            number += 1
            thread = f"{span.thread} ({number})"
        threads.setdefault(thread, threads[span.thread])
        rows.setdefault((thread, span.step), []).append(span)
    first = {row: min(span.start for span in of_row) for row, of_row in rows.items()}
    return {row: rows[row] for row in sorted(rows, key=lambda row: (threads[row[0]], first[row]))}


def chrome_trace(spans: Sequence[Span], path: str | os.PathLike[str]) -> None:
    """Write spans as complete events. Each row is a thread of the format: spans of one row never overlap."""
    events: list[dict[str, Any]] = []
    for number, ((thread, step), of_row) in enumerate(rows_of(spans).items()):
        events.append(
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": f"{thread}: {step}"}}
        )
        events.append({"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": number, "args": {"sort_index": number}})
        events += [
            {
                "ph": "X",
                "name": span.step,
                "cat": span.kind,
                "pid": 1,
                "tid": number,
                "ts": round(span.start * 1e6, 1),
                "dur": round((span.end - span.start) * 1e6, 1),
            }
            for span in of_row
        ]
    with replacing(path) as file:
        file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode())
