"""report: pairs as a table to read and as JSON to keep."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.contestants import CONTESTANTS
from benchmarks.job import Audit, Run
from benchmarks.machine import commit, load, machine, versions
from benchmarks.pairs import Pair
from gpupipe.comparison.ratios import Spread, ratios

__all__ = ["document", "entry", "header", "plain", "summary", "table", "write"]

SCHEMA = 1


def summary(pairs: Sequence[Pair], reference: str) -> dict[str, dict[str, Any]]:
    """Summarise each contestant's runs, and its ratios to the reference's, pair by pair.

    The reference's own entry is the noise: its ratios to itself.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(pair.contestant for pair in pairs):
        own = [pair for pair in pairs if pair.contestant == name]
        runs = [pair.run for pair in own]
        others = [pair.reference for pair in own]
        found[name] = {
            "cpu_ms_per_item": Spread.of([run.cpu_ms for run in runs]),
            "items_per_s": Spread.of([run.rate for run in runs]),
            "first_batch_s": Spread.of([run.first_batch_s for run in runs]),
            "start_s": Spread.of([run.start_s for run in runs]),
            "peak_rss_mb": Spread.of([run.peak_rss_mb for run in runs]),
            "cpu_ratio": ratios([run.cpu_ms for run in runs], [run.cpu_ms for run in others]),
            "rate_ratio": ratios([run.rate for run in runs], [run.rate for run in others]),
            "against": reference,
        }
    return found


def table(found: Mapping[str, Mapping[str, Any]], reference: str, absent: Mapping[str, str], unit: str) -> str:
    """Lay out the summary: CPU time first, then rate, first batch, memory; contestants that did not run are below."""
    head = ("", f"CPU-us/{unit}", f"{unit}s/s", "first batch s", "from start s", "peak MB", "CPU ratio", "rate ratio")
    rows: list[tuple[str, ...]] = [head]
    for name, one in found.items():
        mark = " *" if CONTESTANTS[name].apart else ""
        label = CONTESTANTS[name].label + (" (with itself: the noise)" if name == reference else mark)
        rows.append((
            label,
            f"{one['cpu_ms_per_item'].median * 1e3:.1f}",
            f"{one['items_per_s'].median:.0f}",
            f"{one['first_batch_s'].median:.2f}",
            f"{one['start_s'].median:.2f}",
            f"{one['peak_rss_mb'].median:.0f}",
            str(one["cpu_ratio"]),
            str(one["rate_ratio"]),
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    count = max(one["cpu_ratio"].count for one in found.values()) if found else 0
    lines.insert(1, "-" * len(lines[0]))
    lines += [f"{CONTESTANTS[name].label}: {why}" for name, why in absent.items()]
    lines += [f"* {CONTESTANTS[one].label}: not equal work: {why}" for one, why in _apart(found).items()]
    lines.append(f"medians of {count} pairs; ratios to {CONTESTANTS[reference].label}, pair by pair: median (min-max)")
    return "\n".join(lines)


def document(
    name: str,
    settings: Mapping[str, Any],
    pairs: Sequence[Pair],
    reference: str,
    audits: Sequence[Audit],
    absent: Mapping[str, str],
) -> dict[str, Any]:
    """Collect everything a later reader needs: machine, versions, settings, every raw run, and the summary."""
    return {
        **header(name, settings),
        "reference": reference,
        "not_measured": dict(absent),
        "not_equal": _apart(pair.contestant for pair in pairs),
        "audits": [asdict(one) for one in audits],
        "summary": plain(summary(pairs, reference)),
        "pairs": [entry(pair) for pair in pairs],
    }


def entry(pair: Pair) -> dict[str, Any]:
    """Describe one pair for the result file."""
    return {
        "contestant": pair.contestant,
        "reference_first": pair.reference_first,
        "run": _run(pair.run),
        "reference": _run(pair.reference),
    }


def plain(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Turn the spreads of a summary into what JSON holds."""
    return {
        who: {key: asdict(value) if isinstance(value, Spread) else value for key, value in one.items()}
        for who, one in found.items()
    }


def _apart(names: Iterable[str]) -> dict[str, str]:
    """Why the work of some contestants is known not to be equal."""
    return {name: "; ".join(why.values()) for name in names if (why := CONTESTANTS[name].apart)}


def header(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that every result file starts with."""
    return {
        "schema": SCHEMA,
        "benchmark": name,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "load": load(),
        "versions": versions(),
        "settings": dict(settings),
    }


def write(found: Mapping[str, Any], folder: Path) -> Path:
    """Write a document as <name>-<date>.json; later ones of the same day get a number, none is overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{found['benchmark']}-{found['date'][:10]}"
    path, number = folder / f"{stem}.json", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.json"
    path.write_text(_lines(found))
    return path


def _lines(found: Mapping[str, Any]) -> str:
    """Write JSON with one line for each run, audit or contestant: readable, and small in a diff."""
    entries = []
    for key, value in found.items():
        if isinstance(value, list) and value:
            inner = "[\n" + ",\n".join(f"  {json.dumps(one)}" for one in value) + "\n ]"
        elif isinstance(value, dict) and value:
            inner = (
                "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items()) + "\n }"
            )
        else:
            inner = json.dumps(value)
        entries.append(f" {json.dumps(key)}: {inner}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _run(run: Run) -> dict[str, Any]:
    return {**asdict(run), "cpu_ms_per_item": run.cpu_ms, "items_per_s": run.rate}
