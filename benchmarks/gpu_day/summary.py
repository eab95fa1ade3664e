"""summary: the table of a ledger: for each part its state, and its results in a few lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_day import plan
from benchmarks.gpu_day.found import Found
from benchmarks.gpu_day.ledger import Ledger
from benchmarks.gpu_day.plan import module_of

__all__ = ["elsewhere", "table"]

_WIDTH = 150


def table(ledger: Ledger) -> str:
    """Lay out the results; parts without any are named at the end."""
    lines = []
    if ledger.calls:
        last = ledger.calls[-1]
        dry = "a dry run on the CPU; " if last["dry"] else ""
        lines.append(f"{dry}{_cards(last)}; commit {_commit(last)}; {len(ledger.calls)} calls, {ledger.seconds:.0f} s")
    unknown = []
    for name in plan.ORDER:
        found = ledger.of(name)
        if found.shown().known:
            lines += _part(name, found, _others(ledger, found))
        else:
            unknown.append(name)
    if unknown:
        lines.append(f"not run: {', '.join(unknown)}")
    if others := elsewhere(ledger):
        lines.append(
            f"not of the commit and machine above: {', '.join(others)}; --again {','.join(others)} repeats them"
        )
    return "\n".join(lines)


def elsewhere(ledger: Ledger) -> list[str]:
    """List the parts with results from another commit or machine than those of the last call."""
    return [name for name in plan.ORDER if _others(ledger, ledger.of(name))]


def _part(name: str, found: Found, others: Mapping[str, list[str]]) -> list[str]:
    shown = found.shown()
    state = shown.state or shown.absent or "unfinished"
    if shown.ending.get("ending"):
        state += f", {shown.ending['ending']}"
    if found.waits:
        state += ", to be repeated"
    said = _said(name, shown)
    said += [f"FAILED {question}: {how}" for question, how in shown.failures.items()]
    if shown.state == "crashed":
        said += [line for line in shown.ending["stderr"].splitlines() if line.strip()][-1:]
    if shown.kept:
        said.append(f"from before it was repeated: {', '.join(shown.kept)}")
    for where, questions in others.items():
        which = "all" if len(questions) == len(shown.asked or [""]) else ", ".join(questions)
        said.append(f"NOT MEASURED AS ABOVE, but with {where}: {which}")
    lines = [f"{name} ({state}, {shown.seconds:.0f} s)"]
    for text in said:
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="        ") or [""]
    return lines


def _said(name: str, shown: Found) -> list[str]:
    if not shown.answers:
        return []
    try:
        return [*module_of(name).summary(shown.answers)]
    except Exception as error:  # answers of another commit may differ in form; the other parts keep their lines
        return [f"its answers cannot be shown ({type(error).__name__}: {error}); they are in the file of results"]


def _others(ledger: Ledger, found: Found) -> dict[str, list[str]]:
    """Map what is different elsewhere to the questions that were answered there, "" for a part without any."""
    shown = found.shown()
    others: dict[str, list[str]] = {}
    if not ledger.calls or not shown.known:
        return others
    for question in shown.asked or [""]:
        if where := _different(shown.calls.get(question, {}), ledger.calls[-1]):
            others.setdefault(where, []).append(question)
    return others


def _different(call: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Describe how a call differs from the last one: commit, cards, the rest of the machine, versions; "" if not."""
    if call is last:
        return ""
    if not call:
        return "an unknown commit and machine"
    said = [f"commit {_commit(call)}"] if call["commit"] != last["commit"] else []
    if call["machine"]["gpus"] != last["machine"]["gpus"]:
        said.append(_cards(call))
    for group in ("machine", "versions"):
        here, there = last[group], call[group]
        names = [name for name in {**here, **there} if name != "gpus" and here.get(name) != there.get(name)]
        said += [f"{name} {there.get(name, 'absent')}" for name in names]
    return "; ".join(said)


def _cards(call: Mapping[str, Any]) -> str:
    return ", ".join(call["machine"]["gpus"]) or "no GPU"


def _commit(call: Mapping[str, Any]) -> str:
    head, plus, changes = str(call["commit"]).partition("+")
    return head[:12] + plus + changes
