"""summary: the table of a ledger: for each part its state, and what it found in a few lines."""

from __future__ import annotations

import textwrap

from benchmarks.gpu_day import plan
from benchmarks.gpu_day.ledger import Found, Ledger
from benchmarks.gpu_day.plan import module_of

__all__ = ["table"]

_WIDTH = 150


def table(ledger: Ledger) -> str:
    """Lay out what is known; parts of which nothing is known are named at the end."""
    lines = []
    if ledger.calls:
        last = ledger.calls[-1]
        where = ", ".join(last["machine"]["gpus"]) or "no GPU"
        dry = "a dry run on the CPU; " if last["dry"] else ""
        lines.append(f"{dry}{where}; commit {last['commit'][:12]}; {len(ledger.calls)} calls, {ledger.seconds:.0f} s")
    unknown = []
    for name in plan.ORDER:
        found = ledger.of(name)
        if found.asked or found.state or found.absent:
            lines += _part(name, found)
        else:
            unknown.append(name)
    if unknown:
        lines.append(f"not run: {', '.join(unknown)}")
    return "\n".join(lines)


def _part(name: str, found: Found) -> list[str]:
    state = found.state or found.absent or "unfinished"
    if found.ending.get("ending"):
        state += f", {found.ending['ending']}"
    said = [*module_of(name).summary(found.answers)] if found.answers else []
    said += [f"FAILED {question}: {how}" for question, how in found.failures.items()]
    if found.state == "crashed":
        said += [line for line in found.ending["stderr"].splitlines() if line.strip()][-1:]
    lines = [f"{name} ({state}, {found.seconds:.0f} s)"]
    for text in said:
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="        ") or [""]
    return lines
