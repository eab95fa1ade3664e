"""refusals: tests of calls that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["refused"]

Row = tuple[Any, str, Callable[[], object]]
"""An error, words of its message, and the call that raises it."""


def refused(*rows: Row) -> Callable[[Any, str, Callable[[], object]], None]:
    """A test with an item for each row: the call raises this error with these words."""

    @pytest.mark.parametrize(("error", "words", "call"), rows, ids=[words for _, words, _ in rows])
    def test(error: Any, words: str, call: Callable[[], object]) -> None:
        with pytest.raises(error, match=words):
            call()

    made: Callable[[Any, str, Callable[[], object]], None] = test
    return made
