"""comparison: the result of `gpupipe.compare`, as users see it."""

from __future__ import annotations

import os

from ..classes import dataclass
from .page.write import write_page
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
            MissingDependencyError: jinja2 is not installed.
            OSError: the file cannot be written.
        """
        try:
            write_page(self, path)
        except OSError as error:  # that of a full disk does not name the file
            raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error
