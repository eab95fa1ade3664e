"""ledger: the results as lines of JSON, each on the disk before the next question is asked.

A line is one of
  call     a call of the command began: date, commit, machine, versions, and whether it is dry
  answer   part, question, value, seconds
  failure  part, question, how (an exception, a signal, a time limit), seconds, and the end of what the process printed
  end      part, state ("done", "crashed" or "out of time"), seconds, how its process ended, what it printed
  absent   part, why it cannot run here; asked again by the next call
  again    part: what lies before this line no longer counts
  called   a call ended: its seconds, and which parts it left
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_day.day import ROOT

__all__ = ["Found", "Ledger"]


_FOLDERS = (str(ROOT), sys.prefix, sys.base_prefix, str(Path.home()))
_PRIVATE = tuple(folder.rstrip("/") + "/" for folder in _FOLDERS if folder.strip("/"))  # a container's home may be /
"""Folders of this machine, whose names are left out: results are published."""


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
    """

    answers: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    state: str = ""
    absent: str = ""
    seconds: float = 0.0
    ending: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> list[str]:
        """The questions that are not to be asked again."""
        return [*self.answers, *self.failures]


class Ledger:
    """The file of results, and what it says.

    Args:
        path: where it is, or will be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, Found] = {}
        self.calls: list[dict[str, Any]] = []
        self.seconds = 0.0  # of all calls that ended, and of the parts of those that did not
        self._of_call = 0.0
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines():
            self._read(line)
        self.seconds += self._of_call
        self._torn = text[-1:] not in ("", "\n")  # the machine went while a line was written: it stays alone

    def of(self, part: str) -> Found:
        """What is known of a part."""
        return self.parts.setdefault(part, Found())

    def write(self, row: str, **fields: Any) -> None:
        """Append a line, and wait until it is on the disk."""
        line = json.dumps({"row": row, **fields})
        for folder in _PRIVATE:
            line = line.replace(folder, "")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._torn + line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._torn = False
        self._take(json.loads(line))

    def _read(self, line: str) -> None:
        try:
            row = json.loads(line)
        except ValueError:  # cut short
            return
        self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        kind = row["row"]
        if kind == "call":
            self.seconds += self._of_call
            self._of_call = 0.0
            self.calls.append(row)
            return
        if kind == "called":
            self.seconds += row["seconds"]
            self._of_call = 0.0
            return
        if kind == "again":
            self.parts[row["part"]] = Found()
            return
        part = self.of(row["part"])
        if kind == "absent":
            part.absent = row["why"]
            return
        part.absent = ""
        if kind == "end":
            part.state, part.ending = row["state"], row
            return
        part.seconds += row["seconds"]
        self._of_call += row["seconds"]
        if kind == "answer":
            part.answers[row["question"]] = row["value"]
        else:
            part.failures[row["question"]] = row["how"]
