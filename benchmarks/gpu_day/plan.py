"""plan: the parts in order of importance, and what each needs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias

from benchmarks.contestants import has_module
from benchmarks.gpu_day.day import Day

__all__ = ["ORDER", "Part", "Questions", "all_parts", "module_of", "part"]

Questions: TypeAlias = Mapping[str, Callable[[], Any]]
"""The questions of a part: name -> function that returns an answer JSON can hold."""

ORDER = (
    "environment",
    "complete",
    "first",
    "engines",
    "regions",
    "pixels",
    "place",
    "bad",
    "tolerances",
    "suite",
    "overlap",
    "streams",
    "stall",
    "lifetime",
    "memory",
    "fork",
    "capture",
    "bench",
    "train",
    "cached",
    "speed",
    "chain",
)
"""The parts, the most important first: if time runs out, the last ones are left."""


@dataclass(frozen=True, slots=True)
class Part:
    """A group of questions about a machine, asked in a process of its own.

    A part's file has one as `PART`, and two functions: `questions(day)` returns its `Questions`, `summary(answers)` the
    lines of the table, without importing what the questions need.

    Attributes:
        name: the name of its file.
        asks: its subject, in one line.
        seconds: limit for all of its questions together.
        each: limit for one of them, in seconds.
        least: seconds without which it is not started: what its start and a long question take.
        needs: modules that it requires.
        gpu: whether it needs a GPU: "no", "unless dry", or "yes" even in a dry run.
        alone: whether each question has a process of its own, not only one that comes after a failure.
    """

    name: str
    asks: str
    seconds: int
    each: int
    least: int = 15
    needs: tuple[str, ...] = ("nvidia.dali",)
    gpu: Literal["no", "unless dry", "yes"] = "unless dry"
    alone: bool = False

    def limits(self, day: Day) -> tuple[float, float]:
        """Return the seconds for the whole part and for one question; at most 60 in a dry run."""
        return (min(60, self.seconds), min(60, self.each)) if day.dry else (self.seconds, self.each)

    def missing(self, day: Day) -> str:
        """Return why it cannot run here, "" if it can."""
        if not day.has_gpu and (self.gpu == "yes" or (self.gpu == "unless dry" and not day.dry)):
            return "needs an NVIDIA GPU"
        if day.dry and self.gpu == "yes":
            return "needs a GPU, which a dry run does not use"
        absent = [name for name in self.needs if not has_module(name)]
        return f"not installed: {', '.join(absent)}" if absent else ""


def module_of(name: str) -> ModuleType:
    """Import the file of a part."""
    return importlib.import_module(f"benchmarks.gpu_day.parts.{name}")


def part(name: str) -> Part:
    """Return the part of that name."""
    found: Part = module_of(name).PART
    return found


def all_parts() -> list[Part]:
    """Return all parts, in order."""
    return [part(name) for name in ORDER]
