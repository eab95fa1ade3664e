"""capture: CUDA graphs captured while the loader runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("capture", "CUDA graphs captured while the loader runs", 90, 40, needs=("nvidia.dali", "torch"), gpu="yes",
            alone=True)  # fmt: skip
"""Its questions do not share a process: after a capture that failed, CUDA and torch have errors of their own."""


def questions(day: Day) -> Questions:
    """Return a question for each of torch's `capture_error_mode`, the strictest first."""
    return {mode: partial(_captured, day, mode) for mode in ("global", "thread_local", "relaxed")}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return how many captures each mode made, and the errors that ended it."""
    lines = []
    for mode, one in answers.items():
        said = [f"{who}: {one[who]}" for who in ("capture", "loader") if one.get(who)]
        lines.append(f"{mode}: {one['captures']} captures{', then one failed: ' if said else ''}{'; '.join(said)}")
    return lines


def _captured(day: Day, mode: str) -> dict[str, Any]:
    """Capture a graph beside each batch until one fails; return the first error, and the loader's if it failed, too."""
    import torch

    x = torch.randn(1024, 1024, device="cuda")
    _warm_up(torch, x)
    answer: dict[str, Any] = {"captures": 0, "capture": "", "loader": ""}
    with chain(day, photographs(day, day.batch * 8)).iterator(0) as items:
        while not answer["capture"]:
            try:
                if next(items, None) is None:
                    break
            except Exception as error:  # of the loader: the answer
                answer["loader"] = _first(error)
                break
            answer["capture"] = _failure(torch, x, mode)
            answer["captures"] += not answer["capture"]
        if answer["capture"]:
            try:
                next(items, None)
            except Exception as error:  # the capture may have ended what the loader did meanwhile
                answer["loader"] = _first(error)
    return answer


def _warm_up(torch: Any, x: Any) -> None:
    """Multiply on a side stream, as PyTorch prescribes: within a capture no handle of cuBLAS can be made."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _ = x @ x
    torch.cuda.current_stream().wait_stream(side)


def _failure(torch: Any, x: Any, mode: str) -> str:
    """Capture 200 multiplications and run them; return the error, "" if there was none."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            for _ in range(200):
                _ = x @ x
        graph.replay()
        torch.cuda.synchronize()
    except RuntimeError as error:
        return _first(error)
    return ""


def _first(error: BaseException) -> str:
    """Return the first line of the error that came first: the end of a failed capture raises one about it."""
    while before := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        error = before
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:300]
