"""found: the results of a part so far, from this call and earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Found"]


@dataclass
class Found:
    """The results of a part so far.

    Attributes:
        answers: question -> answer.
        failures: question -> how it failed.
        state: "done", "crashed" or "out of time"; "" while there are questions left.
        absent: why it could not run.
        seconds: the time it has taken.
        ending: the line that ended it.
        calls: question -> the line of the call it was asked in, empty if unknown; "" is for `state` or `absent`.
        before: the results at the time it was to be repeated.
        kept: questions whose answers are from before that.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    state: str = ""
    absent: str = ""
    seconds: float = 0.0
    ending: Mapping[str, Any] = field(default_factory=dict)
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    before: Found | None = None
    kept: list[str] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        """The questions that have been asked."""
        return [*self.answers, *self.failures]

    @property
    def known(self) -> bool:
        """Whether there is any result, since it was to be repeated if it was."""
        return bool(self.asked or self.state or self.absent)

    @property
    def waits(self) -> bool:
        """Whether it is to be repeated and has no new result yet."""
        return self.before is not None and not self.known

    def again(self) -> Found:
        """Return the results of a part that is to be repeated: none that are new, and the old ones."""
        shown = self.shown()
        return Found(before=shown if shown.known else None)

    def shown(self) -> Found:
        """Return the results for the table: an old answer stays until there is a new one, or the part is done."""
        old = self.before
        if old is None or self.state == "done":
            return self
        if self.waits:
            return old
        asked = self.asked
        return Found(
            answers={
                name: value for name, value in {**old.answers, **self.answers}.items() if name not in self.failures
            },
            failures={name: how for name, how in {**old.failures, **self.failures}.items() if name not in self.answers},
            state=self.state,
            absent=self.absent,
            seconds=self.seconds,
            ending=self.ending,
            calls={**old.calls, **self.calls},
            kept=[name for name in old.asked if name not in asked],
        )
