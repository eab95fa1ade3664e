"""found: what is known of a part, of this call and of calls before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Found"]


@dataclass
class Found:
    """What is known of a part.

    Attributes:
        answers: by question.
        failures: by question: how it failed.
        state: "done", "crashed" or "out of time"; "" while something is still to be asked.
        absent: why it could not run.
        seconds: what it took so far.
        ending: the line that ended it.
        calls: by question the line of the call it was asked in, empty if nobody knows; "" is for `state` or `absent`.
        before: what was known when it was to be asked again.
        kept: questions whose answers are from before it was asked again.
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
        """The questions that are not to be asked again."""
        return [*self.answers, *self.failures]

    @property
    def known(self) -> bool:
        """Whether anything was found since it was asked, or asked again."""
        return bool(self.asked or self.state or self.absent)

    @property
    def waits(self) -> bool:
        """Whether it is to be asked again and nothing new is there yet."""
        return self.before is not None and not self.known

    def again(self) -> Found:
        """What is known once it is to be asked again: nothing new, and what there was."""
        shown = self.shown()
        return Found(before=shown if shown.known else None)

    def shown(self) -> Found:
        """What the table shows: an old answer stays until the question has a new one, or the part is done."""
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
