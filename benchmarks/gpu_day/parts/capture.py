"""capture: CUDA graphs captured while the loader runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("capture", "CUDA graphs captured while the loader runs", 60, 40, needs=("nvidia.dali", "torch"), gpu="yes")


def questions(day: Day) -> Questions:
    """Return a question for each of torch's `capture_error_mode`."""
    return {mode: partial(_captured, day, mode) for mode in ("global", "thread_local", "relaxed")}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return how many captures failed, with the first error."""
    return [f"{mode}: {one['failed']} of {one['captures']} failed {one['said']}" for mode, one in answers.items()]


def _captured(day: Day, mode: str) -> dict[str, Any]:
    import torch

    x = torch.randn(1024, 1024, device="cuda")
    said: list[str] = []
    captures = 0
    for batch in chain(day, photographs(day, day.batch * 8)).iterator(0):
        del batch
        captures += 1
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode=mode):
                for _ in range(200):
                    y = x @ x
            graph.replay()
            del y
        except RuntimeError as error:
            said.append(str(error).splitlines()[0][:200])
    torch.cuda.synchronize()
    return {"captures": captures, "failed": len(said), "said": said[:1]}
