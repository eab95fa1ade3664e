"""task: what a worker process is given to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...spec import Structure
from ..element import Element

__all__ = ["Task"]


@dataclass(eq=False, slots=True)
class Task:
    """An element on its way: what came in, and what became of it."""

    element: Element
    epoch: int
    result: Any = None
    structure: Structure | None = None
    done: bool = False
    abandoned: bool = False
    raised: BaseException | None = None
