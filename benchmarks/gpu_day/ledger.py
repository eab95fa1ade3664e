"""ledger: the results as lines of JSON, each on disk before the next question is asked.

A line is one of
  call     a call of the command started: date, commit, machine, versions, and whether it is dry
  answer   part, question, value, seconds
  failure  part, question, how (an exception, a signal, a time limit), seconds, and the end of what the process printed
  end      part, state ("done", "crashed" or "out of time"), how its process ended, the end of what it printed
  absent   part, why it cannot run here; tried again by the next call
  again    part: earlier lines count until there are new ones
  called   a call ended: its seconds, and which parts it left

and has the number of its call as `call`. A line without one belongs to the call above it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu_day.day import ROOT
from benchmarks.gpu_day.found import Found
from benchmarks.stop import undisturbed

__all__ = ["Ledger", "LedgerError"]


_FOLDERS = (str(ROOT), sys.prefix, sys.base_prefix, os.path.expanduser("~"))  # "~" if the home is unknown
_PRIVATE = tuple(f"{folder.rstrip('/')}/" for folder in _FOLDERS if folder.startswith("/") and folder.strip("/"))
"""Folders of this machine, whose names are removed from results, which are published. A container's home may be "/"."""


class LedgerError(Exception):
    """The file of results cannot be read or written."""


class Ledger:
    """The file of results, and its content.

    Args:
        path: the file, which need not exist.

    Attributes:
        parts: name of a part -> its results.
        calls: the lines of calls.
        seconds: of all calls that ended, and of the parts of those that did not.
        skipped: numbers of the lines that are not results, from 1 on.

    Raises:
        LedgerError: the file exists and cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, Found] = {}
        self.calls: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.skipped: list[int] = []
        self._of_call = 0.0
        self._number = 0
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise LedgerError(f"cannot read the results in {path}: {error.strerror}") from error
        for number, line in enumerate(data.split(b"\n"), 1):
            row = _read(line)
            if row:
                self._take(row)
            elif line.strip():
                self.skipped.append(number)
        self.seconds += self._of_call
        self._torn = data[-1:] not in (b"", b"\n")  # a line was interrupted: the next one starts on a new line

    def of(self, part: str) -> Found:
        """Return the results of a part."""
        return self.parts.setdefault(part, Found())

    def write(self, row: str, **fields: Any) -> None:
        """Append a line, and wait until it is on disk.

        Raises:
            LedgerError: the file cannot be written.
        """
        number = self._number + (row == "call")
        line = json.dumps(_public({"row": row, "call": number, **fields}))
        with undisturbed():
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("\n" * self._torn + line + "\n")
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise LedgerError(f"cannot write the results to {self.path}: {error.strerror}") from error
            self._torn = False
            self._take(json.loads(line))

    def _take(self, row: dict[str, Any]) -> None:
        kind = row["row"]
        if kind == "call":
            self.seconds += self._of_call
            self._of_call = 0.0
            self._number = row.setdefault("call", self._number + 1)
            self.calls.append(row)
            return
        if kind == "called":
            self.seconds += row["seconds"]
            self._of_call = 0.0
            return
        if kind == "again":
            self.parts[row["part"]] = self.of(row["part"]).again()
            return
        part = self.of(row["part"])
        call = self._call(row.get("call", self._number))
        if kind == "absent":
            part.absent, part.calls[""] = row["why"], call
            return
        part.absent = ""
        if kind == "end":
            part.state, part.ending, part.calls[""] = row["state"], row, call
            return
        part.seconds += row["seconds"]
        self._of_call += row["seconds"]
        part.calls[row["question"]] = call
        if kind == "answer":
            part.answers[row["question"]] = row["value"]
        else:
            part.failures[row["question"]] = row["how"]

    def _call(self, number: int) -> Mapping[str, Any]:
        # The last of that number, as files of two machines may have been joined; empty if the line is lost.
        return next((call for call in reversed(self.calls) if call["call"] == number), {})


def _public(value: Any) -> Any:
    """Remove the names of private folders from a value."""
    if isinstance(value, str):
        for folder in _PRIVATE:
            value = value.replace(folder, "")
        return value
    if isinstance(value, Mapping):
        return {_public(key): _public(one) for key, one in value.items()}
    return [_public(one) for one in value] if isinstance(value, (list, tuple)) else value


def _read(line: bytes) -> dict[str, Any] | None:
    """Parse a line, None if it is not a row: truncated, damaged, or of another program."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not _number(row.get("call", 0)):
        return None
    kind = row.get("row")
    needs = _NEEDS.get(kind) if isinstance(kind, str) else None
    if needs is None or not all(name in row and good(row[name]) for name, good in needs.items()):
        return None
    return row


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max


def _machine(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("gpus"), list) and all(map(_text, value["gpus"]))


def _versions(value: Any) -> bool:
    return isinstance(value, dict)


def _any(_: Any) -> bool:
    return True


def _state(value: Any) -> bool:
    return value in ("done", "crashed", "out of time")


_NEEDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "call": {"commit": _text, "machine": _machine, "versions": _versions, "dry": _any},
    "answer": {"part": _text, "question": _text, "value": _any, "seconds": _number},
    "failure": {"part": _text, "question": _text, "how": _text, "seconds": _number},
    "end": {"part": _text, "state": _state, "ending": _text, "stderr": _text},
    "absent": {"part": _text, "why": _text},
    "again": {"part": _text},
    "called": {"seconds": _number},
}
"""The required fields of each kind of row."""
