"""host: what one element costs on the host, without images: `range(n).<op>.batch(1000)`, alone and prefetched.

The figure is elements per CPU-second of the whole process tree, over whole passes, including opening, filling a shuffle
buffer and closing. Elements are counted where they enter the chain, so those that a filter drops count, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.equal import UnequalWork
from benchmarks.job import Job
from benchmarks.no_worse import cpu_us, no_worse, own
from benchmarks.pairs import ContestantFailed, Pair, run_pairs, spawn
from benchmarks.pairs import measure as run_once
from gpupipe.comparison.ratios import Spread

__all__ = ["CHAINS", "GOAL", "PREFETCH", "SHARES", "host", "host_checkouts"]

CHAINS: Mapping[str, str] = {
    "map": "map(python_fn)",
    "batch": "batch of scalars",
    "batch-arrays": "batch of float32[8]",
    "shuffle": "shuffle(10_000)",
    "shuffle-all": "shuffle(n) of everything",
    "shuffle-pairs": "shuffle(n) of paths, labels",
    "shuffle-filtered": "shuffle(n) of what is held",
    "filter": "filter(expression)",
    "filter-python": "filter(python_fn)",
    "zip": "zip of two",
    "interleave": "interleave of 16",
}
PREFETCH = (0, 2)
REFERENCE = "gpupipe-host"
GOAL = 800_000
"""The project's goal for every chain, in elements per CPU-second."""
SHARES: Mapping[str, int] = {"tfdata-host": 20, "tfdata-numpy": 20}
"""Contestant -> divisor of its elements: a Python function costs tf.data 75 us, a million calls more than a minute."""
PYTHON = ("map", "filter-python")
"""Chains that call Python, for which tf.data has two contestants; elsewhere one is enough."""
_AUDIT = 20_000


def host(
    out: Path,
    *,
    contestants: Sequence[str] = (),
    chains: Sequence[str] = tuple(CHAINS),
    elements: int = 1_000_000,
    batch: int = 1000,
    pairs: int = 5,
) -> Path:
    """Measure every chain with every contestant, in pairs with gpupipe; print a table and return the result file.

    Args:
        out: folder of the result file.
        contestants: names; empty means all. gpupipe, the reference, always takes part.
        chains: names in `CHAINS`.
        elements: how many enter a chain; fewer for the contestants in `SHARES`.
        batch: rows in a batch.
        pairs: for each chain and contestant.

    Raises:
        UnequalWork: an unknown name, or contestants that do not deliver the same.
        ContestantFailed: the reference ends without a report. Any other that does is left out of that chain.
    """
    known = [name for name, one in CONTESTANTS.items() if one.work == "host"]
    if wrong := [name for name in contestants if name not in known] + [name for name in chains if name not in CHAINS]:
        raise UnequalWork(
            f"host needs contestants out of {', '.join(known)} and chains out of {', '.join(CHAINS)}, got "
            f"{', '.join(wrong)}"
        )
    asked = [name for name in known if name in (*(contestants or known), REFERENCE)]
    absent = {name: why for name in asked if (why := missing(CONTESTANTS[name]))}
    names = [name for name in asked if name not in absent]
    found: dict[str, Any] = {}
    raw: list[dict[str, Any]] = []
    for chain in chains:
        able = [name for name in names if chain in PYTHON or name != "tfdata-numpy"]

        def failed(error: ContestantFailed, chain: str = chain, able: list[str] = able) -> None:
            who = error.contestant
            if who == REFERENCE:
                raise error
            print(f"{who} takes no part in {chain}: {error}", file=sys.stderr, flush=True)
            able.remove(who)
            said = [absent[who]] if who in absent else []
            absent[who] = "; ".join([*said, f"failed at {chain}: {error.reason}"])

        small = Job(REFERENCE, (), "host-audit", batch=batch, chain=chain, elements=min(elements, _AUDIT))
        audits: dict[str, Mapping[str, Any]] = {}
        for name in tuple(able):
            try:
                audits[name] = spawn(replace(small, contestant=name))[0]
            except ContestantFailed as error:
                failed(error)
        check(chain, audits)
        for prefetch in PREFETCH:
            job = replace(small, mode="host", elements=elements, prefetch=prefetch)
            run = run_pairs(job, tuple(able), REFERENCE, pairs, _measure, False, failed)
            took = [pair for pair in list(run) if pair.contestant in able]  # one may have failed in a later round
            key = _key(chain, prefetch)
            found[key] = {**summary(took), "audit": audits[REFERENCE]}
            raw += [{"chain": key, **report.entry(pair)} for pair in took]
            print(lines(key, found[key]), file=sys.stderr, flush=True)
    print(table(found, absent))
    settings = {"elements": elements, "batch": batch, "pairs": pairs, "shares": dict(SHARES), "chains": list(chains)}
    document = {
        **report.header("host", settings),
        "reference": REFERENCE,
        "goal_per_cpu_second": GOAL,
        "not_measured": absent,
        "summary": {
            key: {
                name: {k: asdict(v) if isinstance(v, Spread) else v for k, v in one.items()}
                for name, one in chain.items()
            }
            for key, chain in found.items()
        },
        "pairs": raw,
    }
    return report.write(document, out)


def host_checkouts(
    checkout: Path,
    out: Path,
    *,
    contestants: Sequence[str] = (),
    chains: Sequence[str] = tuple(CHAINS),
    elements: int = 1_000_000,
    batch: int = 1000,
    pairs: int = 9,
) -> Path:
    """Compare the chains of gpupipe with those of another checkout (`benchmarks.no_worse`).

    Raises:
        UnequalWork: an unknown name, or a chain that does not deliver the same.
    """
    (name,), _ = own("host", contestants)
    if wrong := [chain for chain in chains if chain not in CHAINS]:
        raise UnequalWork(f"host needs chains out of {', '.join(CHAINS)}, got {', '.join(wrong)}")
    return no_worse(
        "host",
        {
            _key(chain, prefetch): Job(name, (), "host", batch, chain=chain, elements=elements, prefetch=prefetch)
            for chain in chains
            for prefetch in PREFETCH
        },
        checkout,
        out,
        pairs=pairs,
        settings={"elements": elements, "batch": batch, "chains": list(chains)},
        figures={"CPU-ns/element": lambda run: cpu_us(run) * 1e3},
    )


def _key(chain: str, prefetch: int) -> str:
    return f"{chain}, prefetch({prefetch})" if prefetch else chain


def _measure(job: Job) -> Any:
    """Measure one run; slow contestants get fewer elements."""
    return run_once(replace(job, elements=max(job.elements // SHARES.get(job.contestant, 1), job.batch)))


def check(chain: str, audits: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse contestants that did not deliver the same rows and values.

    Raises:
        UnequalWork: with what each of them delivered.
    """
    if any(audit != audits[REFERENCE] for audit in audits.values()):
        text = "; ".join(f"{name}: {dict(audit)}" for name, audit in audits.items())
        raise UnequalWork(f"{chain} needs contestants that deliver the same, got {text}")


def summary(pairs: Sequence[Pair]) -> dict[str, dict[str, Any]]:
    """Summarise each contestant: elements per CPU-second and per second, and CPU time relative to the reference.

    The reference's own ratio is the noise.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(pair.contestant for pair in pairs):
        own = [pair for pair in pairs if pair.contestant == name]
        runs = [pair.run for pair in own]
        if name == REFERENCE:
            runs = [run for pair in own for run in (pair.run, pair.reference)]
        found[name] = {
            "per_cpu_second": Spread.of([run.items / run.cpu_seconds for run in runs]),
            "per_second": Spread.of([run.rate for run in runs]),
            "cpu_ratio": Spread.of([pair.run.cpu_ms / pair.reference.cpu_ms for pair in own]),
        }
    return found


def lines(key: str, one: Mapping[str, Any]) -> str:
    """Lay out the figures of one chain."""
    rows = []
    for name in (name for name in one if name != "audit"):
        rate, wall, ratio = one[name]["per_cpu_second"], one[name]["per_second"], one[name]["cpu_ratio"]
        label = CONTESTANTS[name].label + (" (with itself: the noise)" if name == REFERENCE else "")
        spread = f"{rate.median:>12,.0f} ({rate.least:,.0f}-{rate.most:,.0f})"
        rows.append(f"{key:<28}{label:<36}{spread:<40}{wall.median:>12,.0f}  {ratio}")
    return "\n".join(rows)


def table(found: Mapping[str, Mapping[str, Any]], absent: Mapping[str, str]) -> str:
    """Lay out all chains, the contestants that are missing, and whether the goal is met."""
    head = f"{'':<64}{'elements/CPU-second (min-max)':>40}{'elements/s':>12}  CPU time, gpupipe = 1"
    rows = [head, *(lines(key, one) for key, one in found.items())]
    rows += [f"{CONTESTANTS[name].label}: {why}" for name, why in absent.items()]
    below = [key for key, one in found.items() if one[REFERENCE]["per_cpu_second"].median < GOAL]
    rows.append(f"goal: {GOAL:,} elements/CPU-s: {'met' if not below else 'NOT met by ' + '; '.join(below)}")
    return "\n".join(rows)
