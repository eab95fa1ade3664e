"""comparison: the result of `gpupipe.compare`, as users see it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .result import Result
from .terminal import text_of

__all__ = ["Comparison"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Result):
    """One chain on every executor; prints as a table with a verdict. See `Result` for its attributes."""

    def __str__(self) -> str:
        return text_of(self)

    def __repr__(self) -> str:
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained HTML page, with plots and pairs of images.

        Raises:
            MissingDependencyError: jinja2 or matplotlib is not installed.
            OSError: the file cannot be written.
        """
        from .page.write import write_page

        write_page(self, path)
