"""engines: whether the card's engines decode JPEGs: what nvImageCodec logs, and how busy they are meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from benchmarks import tied
from benchmarks.gpu_day.day import ROOT, Day
from benchmarks.gpu_day.decoders import decoding, make, rate, rows
from benchmarks.gpu_day.inputs import photographs
from benchmarks.gpu_day.plan import Part, Questions
from gpupipe.comparison.usage import nvml

__all__ = ["PART", "questions", "summary"]

PART = Part("engines", "whether the JPEG engines work", 60, 40)

_WORDS = ("hw", "hardware", "engine", "fancy", "upsampl", "skip", "error")


def questions(day: Day) -> Questions:
    """Ask for the decoders' log, and for the load of the engines while batches are decoded."""
    return {"words": lambda: _words(day), "load": lambda: _load(day)}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the load, and the log lines that name engines."""
    lines = [line for line in answers.get("words", {}).get("lines", []) if "engine" in line.lower()][:5]
    if "load" in answers:
        most = answers["load"]["most_percent"]
        said = "the driver does not report how busy the engines are" if most is None else f"engines busy up to {most} %"
        lines.append(f"{said}; {answers['load']['images_s']} images/s")
    return lines


def _words(day: Day) -> dict[str, Any]:
    done = subprocess.run(
        tied.command("benchmarks.gpu_day.parts.engines"), input=day.to_json(), capture_output=True,
        text=True, errors="replace", timeout=35, cwd=ROOT, env=day.environment(DALI_NVIMGCODEC_LOG_LEVEL="4"),
    )  # fmt: skip
    said = dict.fromkeys((done.stdout + done.stderr).splitlines())
    lines = [line[:240] for line in said if any(word in line.lower() for word in _WORDS)]
    return {"status": done.returncode, "lines": lines[:40]}


def _load(day: Day) -> dict[str, Any]:
    seen: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            load = nvml.jpeg_load()
            if load is not None:
                seen.append(load)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = rate(day, make(day, decoding()), photographs(day, day.batch), 3.0)
    finally:
        stop.set()
        watcher.join()
    return {**found, "most_percent": max(seen, default=None), "samples": len(seen)}


if __name__ == "__main__":
    _day = Day.from_json(sys.stdin.read())
    rows(make(_day, decoding(), 8), photographs(_day, 8))
