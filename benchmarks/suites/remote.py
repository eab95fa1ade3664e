"""remote: records a second of 16 TFRecord files on a server that takes 0, 50 or 200 ms for each answer.

The server is a process of its own on 127.0.0.1; it counts requests. The files hold 96 records of 108 KB each, random
bytes. Each run is a process that interleaves them, 8 at a time, with AUTOTUNE; the clock starts after a first record,
for which it imports what it needs. Before that it lists the files by name, twice, and takes and loads a state; the
first list includes the import of the client (fsspec, aiohttp). `--against` runs another checkout in alternating pairs.
"""

from __future__ import annotations

import argparse
import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report, tied
from benchmarks.equal import UnequalWork
from benchmarks.pairs import ContestantFailed
from gpupipe.comparison.ratios import Spread, pair_order, ratios

__all__ = ["GOALS", "MOST_REQUESTS", "add_options", "remote"]

FILES, EACH, SIZE = 16, 96, 108_000
GOALS: Mapping[int, float] = {50: 2000, 200: 900}
"""Records a second, by milliseconds of an answer."""
MOST_REQUESTS = 64
QUESTIONS = {"list_cold": "first list", "list": "list", "state": "state", "load": "load a state"}
"""What is asked of 16 files, by its name in results."""
QUESTION_GOAL = 0.5
"""Most seconds of each question at 200 ms, also where the client is imported first."""
LATENCIES = (0, 50, 200)
_ROOT = Path(__file__).parents[2]
_LIMIT = 300
"""Seconds that a run may take."""


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("remote", help="records a second from a server that takes 0, 50, 200 ms an answer")
    parser.set_defaults(run=_run)
    parser.add_argument("--latencies", default="", help=f"milliseconds; default: {','.join(map(str, LATENCIES))}")
    parser.add_argument("--each", type=int, default=EACH, help="records in a file (%(default)s)")
    parser.add_argument("--pairs", type=int, default=9, help="runs for each latency (%(default)s)")
    parser.add_argument("--against", type=Path, help="another checkout of gpupipe to compare with")


def _run(options: argparse.Namespace, folder: Path) -> int:
    latencies = tuple(map(int, options.latencies.split(","))) if options.latencies else LATENCIES
    path = remote(
        options.out, folder, latencies=latencies, each=options.each, pairs=options.pairs, against=options.against
    )
    print(f"written to {path.name}")
    return 0


def remote(
    out: Path,
    folder: Path,
    *,
    latencies: Sequence[int] = LATENCIES,
    each: int = EACH,
    pairs: int = 9,
    against: Path | None = None,
) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        folder: the files are written here.
        latencies: of the server, in milliseconds.
        each: records in a file.
        pairs: runs for each latency, and checkout.
        against: another checkout; None measures this one alone.

    Raises:
        ContestantFailed: a run ends without a report.
        UnequalWork: the records of two runs differ.
    """
    _write(folder, each)
    checkouts = {"this": _ROOT} if against is None else {"this": _ROOT, "other": against}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    digests: set[str] = set()
    for latency in latencies:
        with _serving(folder, latency) as url:
            runs = found.setdefault(str(latency), {name: [] for name in checkouts})
            for number in range(pairs):
                for which in pair_order(number) if len(checkouts) == 2 else (0,):
                    name = tuple(checkouts)[which]
                    one = _measure(checkouts[name], url, name)
                    digests.add(str(one.pop("digest")))
                    runs[name].append(one)
    if len(digests) != 1:
        raise UnequalWork("the runs gave different records, or another order")
    print(_table(found))
    settings = {"files": FILES, "each": each, "bytes": SIZE, "cycle_length": 8, "pairs": pairs}
    document = report.header("remote", {**settings, "against": against is not None})
    rates = {str(key): value for key, value in GOALS.items()}
    document["goals"] = {"records_per_s": rates, "requests": MOST_REQUESTS, "question_s": {"200": QUESTION_GOAL}}
    document["runs"] = found
    document["ratios"] = {
        latency: {
            key: asdict(ratios([run[key] for run in runs["this"]], [run[key] for run in runs["other"]]))
            for key in ("records_per_s", "cpu_ms")
        }
        for latency, runs in found.items()
        if "other" in runs
    }
    return report.write(document, out)


def _write(folder: Path, each: int) -> None:
    from gpupipe.io import TFRecordWriter

    draw = np.random.default_rng(5)
    for file in range(FILES):
        with TFRecordWriter(folder / f"{file:02d}") as out:
            for _ in range(each):
                out.write(draw.bytes(SIZE))


def _measure(checkout: Path, url: str, name: str) -> dict[str, Any]:
    """Run one epoch in a process; its seconds, CPU time and requests."""
    command = tied.command(str(Path(__file__).with_name("remote_epoch.py")), url, str(checkout.absolute()))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, cwd=_ROOT)
    except subprocess.TimeoutExpired as error:
        raise ContestantFailed(name, "no end", f"{name} did not end within {_LIMIT} s") from error
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise ContestantFailed(name, why, f"{name} failed: {why}")
    one: dict[str, Any] = json.loads(done.stdout)
    print(f"{name} {one['records_per_s']:.0f} records/s", file=sys.stderr, flush=True)
    return one


def _table(found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    lines = [f"{'an answer takes':<18}{'records/s':>26}{'first s':>10}{'CPU-ms a record':>18}{'requests':>10}"]
    for latency, by_name in found.items():
        for name, runs in by_name.items():
            rate, requests = Spread.of([run["records_per_s"] for run in runs]), max(run["requests"] for run in runs)
            first, cpu = (Spread.of([run[key] for run in runs]).median for key in ("first_s", "cpu_ms"))
            goal = GOALS.get(int(latency))
            met = "" if goal is None or name == "other" else (
                f"   goal >= {goal:g}, <= {MOST_REQUESTS} requests: "
                f"{'met' if rate.median >= goal and requests <= MOST_REQUESTS else 'NOT met'}"
            )  # fmt: skip
            label = f"{latency} ms" + (", other" if name == "other" else "")
            cells = f"{rate!s:>26}{first:>10.2f}{cpu:>18.3f}{requests:>10}"
            lines.append(f"{label:<18}{cells}{met}")
    return "\n".join([*lines, "", *_questions(found)])


def _questions(found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """Lines with the seconds that a list of the files and a state take."""
    lines = [f"{'seconds of':<18}" + "".join(f"{what:>14}" for what in QUESTIONS.values())]
    for latency, by_name in found.items():
        for name, runs in by_name.items():
            cells = [Spread.of([run[f"{key}_s"] for run in runs]).median for key in QUESTIONS]
            label = f"{latency} ms" + (", other" if name == "other" else "")
            met = "" if latency != "200" or name == "other" else (
                f"   goal <= {QUESTION_GOAL:g}: {'met' if max(cells) <= QUESTION_GOAL else 'NOT met'}"
            )  # fmt: skip
            lines.append(f"{label:<18}" + "".join(f"{cell:>14.2f}" for cell in cells) + met)
    return lines


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers HEAD and ranges of files; ``/requests`` is their number so far, which starts again."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        if self.path == "/requests":
            with self.server.lock:
                count, self.server.count = self.server.count, 0
            self._send(str(count).encode(), True)
            return
        self._answer(True)

    def log_message(self, format: str, *args: Any) -> None:
        return

    def _answer(self, body: bool) -> None:
        with self.server.lock:
            self.server.count += 1
        time.sleep(self.server.latency / 1e3)
        path = self.server.folder / self.path.strip("/")
        if not path.is_file():
            self.send_error(404)
            return
        size, span = path.stat().st_size, self.headers.get("Range")
        first, stop = 0, size
        if span:
            start, _, last = span.removeprefix("bytes=").partition("-")
            first, stop = int(start), min(int(last or size - 1) + 1, size)
        with path.open("rb") as file:
            file.seek(first)
            data = file.read(stop - first) if body else b""
        self._send(data, body, stop - first, f"bytes {first}-{stop - 1}/{size}" if span else "")

    def _send(self, data: bytes, body: bool, size: int | None = None, span: str = "") -> None:
        self.send_response(206 if span else 200)
        self.send_header("Content-Length", str(len(data) if size is None else size))
        if span:
            self.send_header("Content-Range", span)
        self.end_headers()
        if body:
            self.wfile.write(data)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path, latency: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.latency = folder, latency
        self.lock, self.count = threading.Lock(), 0


@contextmanager
def _serving(folder: Path, latency: int) -> Iterator[str]:
    """Serve a folder from another process; yields the URL."""
    command = tied.command(__name__, str(folder), str(latency))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    with _Server(Path(sys.argv[1]), int(sys.argv[2])) as running:
        print(running.server_port, flush=True)
        running.serve_forever()
