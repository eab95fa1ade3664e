"""command: `python -m benchmarks gpu-day`: its options and plan, running the parts, the table at the end."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from benchmarks.gpu_day import plan
from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.ledger import Ledger
from benchmarks.gpu_day.plan import Part, all_parts
from benchmarks.gpu_day.run import run_part
from benchmarks.gpu_day.summary import elsewhere, table
from benchmarks.machine import commit, gpus, machine, versions
from benchmarks.stop import Stopped

__all__ = ["LEFT", "add_options", "gpu_day"]

LEFT = 3
"""The exit status of a call that leaves work to the next one."""


def add_options(parser: argparse.ArgumentParser, out: Path) -> None:
    """Add the options of the command.

    Args:
        parser: of the command.
        out: the default folder of results.
    """
    parser.add_argument("--dry", action="store_true", help="on the CPU with few images, to test the parts themselves")
    parser.add_argument("--list", action="store_true", help="print the plan and run nothing")
    parser.add_argument("--report", action="store_true", help="print the table of all results so far and run nothing")
    parser.add_argument("--only", type=_names, default=(), help="parts, separated by commas; default: all")
    parser.add_argument("--again", type=_names, default=(), help="parts to repeat")
    parser.add_argument("--minutes", type=_minutes, default=60.0, help="for all calls with one --out (%(default)s)")
    parser.add_argument(
        "--call-minutes", type=_minutes, default=None,
        help="for this call, which ends before that and leaves the rest to the next one; default: --minutes",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=out, help="folder of gpu-day.jsonl and of what the bench writes")
    parser.add_argument("--scratch", type=Path, default=None, help="folder for temporary files, removed at the end")


def gpu_day(options: argparse.Namespace, folder: Path) -> int:
    """Run the missing parts, the most important first; print the table.

    After a signal that asks it to end, it prints the results so far and how to continue.

    Returns:
        0 if nothing is left to do, 3 if another call is needed, 1 if a part of a dry run failed, 128 + the number of a
        signal that ended it.

    Raises:
        LedgerError: the file of results cannot be read or written.
    """
    ledger = Ledger(options.out / ("gpu-day-dry.jsonl" if options.dry else "gpu-day.jsonl"))
    if lost := ledger.skipped:
        _say(f"{ledger.path.name}: {len(lost)} lines are not results and are skipped, the first is line {lost[0]}")
    chosen = [part for part in all_parts() if not options.only or part.name in options.only]
    if options.list:
        _print(_plan(chosen, ledger))
        return 0
    if options.report:
        _print(table(ledger))
        return 0
    started = time.monotonic()
    budget = options.minutes * 60 - ledger.seconds
    until = started + min(budget, (options.call_minutes or math.inf) * 60) - _MARGIN
    day = Day(options.dry, bool(gpus()), str(options.out.resolve()), str(folder))
    _start(ledger, options)
    status, stopped = 0, ""
    try:
        left = _run(chosen, day, ledger, until)
    except Stopped as stop:
        left = [part.name for part in chosen if not ledger.of(part.name).state and not part.missing(day)]
        status, stopped = stop.status, str(stop)
    ledger.write("called", seconds=round(time.monotonic() - started, 1), left=left)
    _print(table(ledger))
    same = "the same command without --again" if options.again else "the same command"
    if stopped:
        _print(
            f"{stopped}; the results so far are kept" + (f"; {same} continues with {', '.join(left)}" if left else "")
        )
        return status
    if left:
        rest = options.minutes * 60 - ledger.seconds
        _print(f"left out: {', '.join(left)}; " + (
            f"{same} continues with them ({rest / 60:.0f} of {options.minutes:.0f} minutes are left)"
            if rest > 2 * _MARGIN else f"the {options.minutes:.0f} minutes are over: pass more --minutes"
        ))  # fmt: skip
        return LEFT
    return int(options.dry and any(_failed(ledger, part) for part in chosen))


_MARGIN = 10.0
"""Seconds reserved at the end of a call: for a process to print where it hangs, and for the table."""


def _run(chosen: list[Part], day: Day, ledger: Ledger, until: float) -> list[str]:
    """Run parts one after another until `until`; return those that are not finished."""
    left = []
    for part in chosen:
        found = ledger.of(part.name)
        if found.state:
            continue
        if why := part.missing(day):
            ledger.write("absent", part=part.name, why=why)
            _say(f"{part.name}: {why}")
            continue
        if until - time.monotonic() >= (0 if day.dry else part.least):
            _say(f"{part.name}: {part.asks} ...")
            run_part(part, day, ledger, until)
        if not found.state:
            left.append(part.name)
    return left


def _start(ledger: Ledger, options: argparse.Namespace) -> None:
    here: dict[str, Any] = {"commit": commit(), "machine": machine(), "versions": versions()}
    ledger.write("call", date=datetime.now(timezone.utc).isoformat(timespec="seconds"), dry=options.dry, **here)
    for name in options.again:
        ledger.write("again", part=name)
    if others := [name for name in elsewhere(ledger) if not ledger.of(name).waits]:
        _say(f"measured on another commit or machine than this one: {', '.join(others)}; "
             f"--again {','.join(others)} repeats them")  # fmt: skip


def _failed(ledger: Ledger, part: Part) -> bool:
    found = ledger.of(part.name)
    return bool(found.failures) or (found.state != "done" and not found.absent)


def _plan(chosen: list[Part], ledger: Ledger) -> str:
    rows = []
    for part in chosen:
        found = ledger.of(part.name)
        again = "to be repeated" if found.waits else ""
        state = found.state or again or (f"{len(found.asked)} questions asked" if found.asked else "")
        rows.append(f"{part.name:12} {part.seconds:5} s  {part.asks}" + (f" [{state}]" if state else ""))
    return "\n".join([*rows, f"{'at most':12} {sum(part.seconds for part in chosen):5} s"])


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if wrong := [name for name in names if name not in plan.ORDER]:
        raise argparse.ArgumentTypeError(f"needs parts out of {', '.join(plan.ORDER)}, got {', '.join(wrong)}")
    return names


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes * 60 < math.inf:
        raise argparse.ArgumentTypeError(f"needs a number of minutes above 0, got {text}")
    return minutes


def _say(text: str) -> None:
    _print(text, sys.stderr)


def _print(text: str, file: TextIO | None = None) -> None:
    """Print, unless the reader is gone, as a pipe to `head` or a terminal may be: the results are in a file anyway.

    Characters that the stream cannot encode are escaped.
    """
    stream = sys.stdout if file is None else file
    encoding = stream.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(text, file=stream, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # so that Python's last flush succeeds
        os.close(nowhere)
