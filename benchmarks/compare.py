"""compare: one comparison from start to end: data, contestants, equal work, pairs, table, result file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import data, large, prepared, probe, report
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.equal import UnequalWork, check, expected_counts
from benchmarks.job import Audit, Job
from benchmarks.no_worse import cpu_us, no_worse, own
from benchmarks.pairs import ContestantFailed, Pair, audit, notices_damage, run_pairs
from benchmarks.stop import Stopped

__all__ = ["ALL", "GOALS", "Comparison", "audited", "compare", "compare_checkouts", "present"]

ALL = "all"
"""In place of names: every contestant of the work, peers too."""
_PROBES = 512
DECODED = 16
"""Photographs of 3 megapixels whose decoding alone is measured."""
_REFERENCES = {
    "chain": "dali",
    "chain-plain": "plain-tfdata",
    "extract": "tfdata-extract",
    "chain-gpu": "dali-gpu-fancy",
    "approximate": "tfdata-exact",
    "overhead": "fast-calls",
    "prepared": "prepared-whole",
    "chain-uncropped-resize": "resize-tfdata",
    "chain-uncropped-linear": "linear-tfdata",
    "chain-uncropped-center": "center-tfdata",
    "on-error-dali": "raise-dali",
    "on-error-numpy": "raise-numpy",
}

# The project's goals: (contestant, the other, CPU ratio at most, rate ratio at least; 0 is any). Always printed.
GOALS: Mapping[str, tuple[tuple[str, str, float, float], ...]] = {
    "chain": (
        ("gpupipe-dali", "dali", 1.03, 0.97),
        ("gpupipe-fast", "dali", 0.75, 0.0),
        ("gpupipe-fast", "torch", 0.6, 0.0),
        ("gpupipe-fast", "torch-alone", 0.6, 0.0),
    ),
    "chain-plain": (("plain-gpupipe-fast", "plain-tfdata", 0.6, 1.5),),
    "extract": (("gpupipe-extract", "tfdata-extract", 0.45, 1.4),),
    "approximate": (("gpupipe-fast-smaller", "tfdata-exact", 0.85, 0.0),),
    "overhead": (("fast-chain", "fast-calls", 1.1, 0.0), ("fast-memory", "fast-calls", 1.1, 0.0)),
    "prepared": (
        ("prepared-decoded", "prepared-whole", 0.4, 0.0),
        ("prepared-cache", "prepared-whole", 0.4, 0.0),
        ("prepared-decoded", "prepared-turboloader", 1.0, 0.0),
        ("prepared-cache", "prepared-turboloader", 1.0, 0.0),
    ),
    **{
        f"chain-uncropped-{form}": tuple((f"{form}-fast", f"{form}-{peer}", 0.9, 0.0) for peer in peers)
        for form, peers in {
            "resize": ("tfdata", "torchvision", "dataio"),
            "linear": ("tfdata",),
            "center": ("tfdata", "torchvision", "dataio"),
        }.items()
    },
    "on-error-dali": (("skip-dali", "raise-dali", 1.03, 0.0),),
    "on-error-numpy": (("skip-numpy", "raise-numpy", 1.03, 0.0),),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The settings of a comparison; the fields are the options of the command."""

    work: str
    data: str = ""
    contestants: tuple[str, ...] = ()
    against: str = ""
    pairs: int = 9
    batch: int = 64
    batches: int = 40
    warmup: int = 10
    threads: int = 2
    shuffle: int = 1000
    probes: int = 40
    timeout: float = 600.0
    megapixels: float = 0.2
    """Of the photographs that are drawn."""
    dry: bool = False
    """Whether unequal work is printed instead of refused: a trial with few probes, whose figures mean nothing."""
    minutes: float = 0.0
    """Within which `compare` should end, by leaving out rounds of pairs but the first; 0: all are measured."""

    @property
    def size(self) -> float:
        """Megapixels of the photographs that are drawn."""
        return 3.0 if self.work == "approximate" else self.megapixels

    @property
    def reference(self) -> str:
        """The contestant that the others are divided by."""
        return self.against or _REFERENCES[self.work]


def present(what: Comparison) -> tuple[list[str], dict[str, str]]:
    """Return the contestants that can take part, and why the others cannot.

    Raises:
        UnequalWork: if a name is unknown or does other work, or the reference cannot take part.
    """
    # On a machine with a GPU the cost of the same chain on its CPU is of interest, too.
    works = ("chain", "chain-gpu") if what.work == "chain-gpu" else (what.work,)
    known = [name for name, one in CONTESTANTS.items() if one.work in works]
    usual = [name for name in known if not CONTESTANTS[name].peer]
    asked = known if what.contestants == (ALL,) else what.contestants or usual
    if wrong := [name for name in (*asked, what.reference) if name not in known]:
        raise UnequalWork(
            f"{what.work} needs contestants out of {', '.join(known)}, got {', '.join(wrong)}; choose among them"
        )
    names = [name for name in known if name in asked or name == what.reference]
    absent = {name: why for name in names if (why := missing(CONTESTANTS[name]))}
    if what.reference in absent:
        raise UnequalWork(
            f"{what.work} needs its reference {what.reference}, got {absent[what.reference]}; "
            "install it, or name another one with --against"
        )
    return [name for name in names if name not in absent], absent


def compare(what: Comparison, folder: Path, out: Path) -> Path:
    """Compare the contestants of one kind of work; print the table and return the result file.

    Args:
        what: the options.
        folder: for temporary files.
        out: for the result file.

    Raises:
        UnequalWork: if contestants cannot be compared.
        ContestantFailed: if the reference ends without a report. Any other that does is listed as absent, with the
            reason.
        Stopped: a signal has ended it. If each contestant had at least one pair, then the table of the pairs so far was
            printed and the result file written, whose field `stopped` says so; likewise for the end of the reference.
    """
    until = time.monotonic() + 60 * what.minutes if what.minutes else math.inf
    names, absent = present(what)
    shards = data.load(what.data, folder, what.size)
    files = shards.files
    if what.work == "prepared":
        files = (prepared.forms(files, folder / "forms"),)
        what = replace(what, warmup=prepared.warmup(shards.records, what.batch, what.warmup))
    job = _job(what, files, shards.records)

    def failed(error: ContestantFailed) -> None:
        if error.contestant == what.reference:
            raise error
        _say(f"{error.contestant} takes no part: {error}")
        absent[error.contestant] = f"failed: {error.reason}"

    audits, crc = audited(what, names, folder, job, failed)
    names = [name for name in names if name not in absent]
    decoded = large.decoding([large.draw(n) for n in range(DECODED)]) if what.work == "approximate" else None
    pairs, end = _paired(what, names, job, failed, until)
    pairs = [pair for pair in pairs if pair.contestant not in absent]  # one may have failed in a later round
    names = [name for name in names if name not in absent]
    if end is not None and len({pair.contestant for pair in pairs}) < len(names):
        raise end
    settings = {**asdict(what), **shards.describe(), "files_in_a_pass": len(job.files), "verifies_checksums": crc}
    if what.work == "prepared":
        settings["bytes_of_forms"] = prepared.sizes(files[0])
    found = report.summary(pairs, what.reference)
    name = f"dry-{what.work}" if what.dry else what.work + _suffix(0.2 if what.data else what.megapixels)
    document = report.document(name, settings, pairs, what.reference, audits, absent)
    if decoded is not None:
        document["decoding"] = decoded
    if end is not None or len(pairs) < what.pairs * len(names):
        why = f"the end of {what.minutes:g} minutes" if end is None else _why(end)
        document["stopped"] = f"{why} after {len(pairs)} of {what.pairs * len(names)} pairs"
    written = report.write(document, out)  # before it is printed, which a signal may end
    print(report.table(found, what.reference, absent, "record" if what.work == "extract" else "image"))
    for line in _goals(what, found):
        print(line)
    if "stopped" in document:
        _say(f"stopped: {document['stopped']}; they are in {written}")
    if end is not None:
        raise end
    return written


def _job(what: Comparison, files: Sequence[str], records: int) -> Job:
    """The job of a comparison, for its reference; `files` are read as often as it takes."""
    margin = what.shuffle + 8 * what.batch  # so that no pass nears its end within the window
    return Job(
        contestant=what.reference,
        files=data.repeated(files, records, (what.warmup + what.batches) * what.batch + margin),
        batch=what.batch,
        threads=what.threads,
        warmup=what.warmup,
        batches=what.batches,
        shuffle=what.shuffle,
        timeout=what.timeout,
    )


def compare_checkouts(what: Comparison, checkout: Path, folder: Path, out: Path) -> Path:
    """Compare gpupipe's contestants of one kind of work with those of another checkout (`benchmarks.no_worse`)."""
    if what.against:
        raise UnequalWork(f"{what.work} needs --checkout or --against, got both; leave one out")
    until = time.monotonic() + 60 * what.minutes if what.minutes else math.inf
    names, absent = own(what.work, what.contestants)
    shards = data.load(what.data, folder, what.size)
    job = _job(what, shards.files, shards.records)
    return no_worse(
        f"dry-{what.work}" if what.dry else what.work + _suffix(0.2 if what.data else what.megapixels),
        {CONTESTANTS[name].label: replace(job, contestant=name) for name in names},
        checkout,
        out,
        pairs=what.pairs,
        settings={**asdict(what), **shards.describe(), "files_in_a_pass": len(job.files)},
        figures={f"CPU-us/{'record' if what.work == 'extract' else 'image'}": cpu_us},
        absent=absent,
        until=until,
    )


def _paired(
    what: Comparison, names: Sequence[str], job: Job, failed: Callable[[ContestantFailed], None], until: float
) -> tuple[list[Pair], Stopped | ContestantFailed | None]:
    """Measure pairs; return them, and what broke that off: a signal, or the end of the reference."""
    unit = "records" if what.work == "extract" else "images"
    pairs: list[Pair] = []
    try:
        one_seed = what.work.startswith("on-error")
        for pair in run_pairs(
            job, names, what.reference, what.pairs, one_seed=one_seed, on_failure=failed, until=until
        ):
            pairs.append(pair)
            told = [f"{who} {run.cpu_ms:.3f} CPU-ms, {run.rate:.0f} {unit}/s"
                    for who, run in ((pair.contestant, pair.run), (what.reference, pair.reference))]  # fmt: skip
            _say(f"pair {len(pairs)} of {what.pairs * len(names)}: {'; '.join(told)}")
    except (Stopped, ContestantFailed) as end:
        return pairs, end
    return pairs, None


def _why(end: Stopped | ContestantFailed) -> str:
    return end.signal if isinstance(end, Stopped) else f"{end.contestant}: {end.reason}"


def audited(
    what: Comparison, names: Sequence[str], folder: Path, job: Job, failed: Callable[[ContestantFailed], None]
) -> tuple[list[Audit], dict[str, bool]]:
    """Run all contestants over the probes and refuse unequal work, before anything is timed; report failures."""
    probes = tuple(str(path) for path in probe.write_probes(folder, _PROBES))
    if what.work == "prepared":
        probes = (prepared.forms(probes, folder / "probe-forms"),)
    once = what.work == "extract" or what.work.startswith("chain-uncropped")  # nothing random
    times = 1 if once else what.probes
    if _PROBES * times % what.batch:
        raise UnequalWork(
            f"the audit needs a --batch that divides {_PROBES * times}, got {what.batch}; use a power of 2"
        )
    damaged = (str(probe.write_damaged(folder)),)
    audits, crc = [], {}
    for name in names:
        try:
            found = audit(replace(job, contestant=name, files=probes * times))
            if what.work == "prepared":  # each library shrinks in its way; and its forms are not the damaged file
                found.figures.pop("contrast", None)
            else:
                crc[name] = notices_damage(replace(job, contestant=name, files=damaged))
        except ContestantFailed as error:
            failed(error)
            continue
        audits.append(found)
        _say(f"audit of {name}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.figures.items()))
    _check(what, audits, expected_counts(_PROBES, times))
    if what.work == "extract" and not all(crc.values()):
        careless = ", ".join(name for name, noticed in crc.items() if not noticed)
        raise UnequalWork(
            f"extract needs contestants that verify checksums, got {careless} that did not notice a wrong one"
        )
    return audits, crc


def _suffix(megapixels: float) -> str:
    return "" if megapixels == 0.2 else f"-{megapixels:g}mp"


def _check(what: Comparison, audits: Sequence[Audit], counts: dict[str, int]) -> None:
    try:
        check(audits, counts, {one.contestant: CONTESTANTS[one.contestant].apart for one in audits})
    except UnequalWork as error:
        if not what.dry:
            raise
        _say(f"a trial, otherwise refused: {error}")


def _goals(what: Comparison, found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The goals of this work, one line each: a ratio to another contestant than the reference is one of medians."""
    for name, other, cpu, rate in GOALS.get(what.work, ()):
        if name not in found or other not in found:
            yield f"goal: {name} against {other} was not measured"
            continue
        of_other = {} if other == what.reference else found[other]
        ratios = [
            found[name][key].median / (of_other[key].median if of_other else 1) for key in ("cpu_ratio", "rate_ratio")
        ]
        met = ratios[0] <= cpu and ratios[1] >= rate
        wanted = f"CPU ratio <= {cpu}" + (f", rate ratio >= {rate}" if rate else "")
        got = " and ".join(f"{ratio:.3f}" for ratio in ratios[: 1 + bool(rate)])
        yield f"goal: {name} against {other}: {wanted}: {'met' if met else 'NOT met'}, {got}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
