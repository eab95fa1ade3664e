"""empty_passes: how a repeat goes on where a pass gives nothing, and when it has had enough.

A counted repeat makes all its passes: one that happens to be empty takes no element from another. An endless one may
have an input that stays empty: nobody can know that, so it ends after some empty passes, and says so in the log.
"""

from __future__ import annotations

from ..log import logger
from .base import Context
from .watch import Watch, Where

__all__ = ["ENOUGH", "EmptyPasses"]

ENOUGH = 10
"""Passes in a row without an element after which an endless repeat ends."""


class EmptyPasses:
    """Passes of a repeat in a row without an element.

    Args:
        where: the step.
        endless: it ends after `ENOUGH` of them.
        at: it begins no pass once this run is stopped.
        count: so many before, from a state.

    Attributes:
        count: how many there are; the pass at hand is one of them until it gives an element.
    """

    __slots__ = ("_endless", "_stopped", "_watch", "_where", "count")

    def __init__(self, where: Where, endless: bool, at: Context, count: int = 0) -> None:
        self._where = where
        self._endless = endless
        self._stopped = at.run.stopped
        self._watch = Watch(where, what="passes")
        self.count = count

    def another(self) -> bool:
        """Whether there is to be another pass, behind those that there were."""
        if self.count:
            if self._endless and self.count >= ENOUGH:
                logger.warning("%s ends after %d passes in a row without an element", self._where, self.count)
                return False
            self._watch.nothing(self.count)
        return not self._stopped.is_set()
