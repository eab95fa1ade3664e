"""Random chains go on exactly where their state was taken, wherever they had marked their input.

A step that holds elements marks places in its input to begin again, by the clock. So the same chain goes on by other
code on a busy machine: here marks are forced, in each place, in none, and in some.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.flow import access, run, words
from gpupipe.flow.maps import read_payloads, scan
from gpupipe.flow.sources import arrays, numbers, readers
from gpupipe.flow.state import checkpoints
from gpupipe.optimize.place import placer as place
from tests.reliability.resume import plain, through_json
from tests.reliability.resume_programs import (
    SOURCES,
    STEPS,
    Program,
    build,
    free_programs,
    programs,
    programs_with,
    write_files,
)
from tests.selection import FULL, QUICK
from tests.selection import programs as programs_of

PROGRAMS = programs_of(3600 if FULL else 160)
LEAST = 0 if QUICK else 3 if FULL else 1
"""A part that fewer programs ran is not tested."""

LONGEST = 250
"""Elements of a chain; one that is longer is not run."""

ACTIONS = ("go on", "go on", "lose caches", "look")
"""What follows behind some elements: another iterator goes on, perhaps without the caches in files, or none does."""
POLICIES = ("always", "never", "sometimes")

_SMALL = (
    (words, "_AT_ONCE", 3),
    (words, "_BLOCKS", 2),
    (arrays, "_BLOCK", 4),
    (readers, "LOCAL_BLOCK", 64),
    (words, "BLOCK", 4),
    (numbers, "BLOCK", 4),
    (scan, "LARGEST", 4),
    (access, "AT_ONCE", 4),
    (read_payloads, "AT_ONCE", 2),
    (read_payloads, "MOST", 4),
    (run, "cpu_count", lambda: 4),  # so that a thread reads payloads ahead
    (place, "MICRO_BATCH", 3),
)
"""What is done in blocks, and blocks so small that chains of some elements cross them."""

Walk = Sequence[tuple[int, str]]
"""How often `next` is called, and what follows: see `ACTIONS`."""


@contextmanager
def marked(policy: str, seed: int, small: bool) -> Iterator[None]:
    """Marks in every place, in none or in some, whatever the clock says."""
    draws = random.Random(seed)
    due: Callable[..., bool] = {
        "always": lambda self, count: True,
        "never": lambda self, count: self._always,
        "sometimes": lambda self, count: self._always or draws.random() < 0.4,
    }[policy]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(checkpoints.Interval, "due", due))
        for module, name, value in _SMALL if small else ():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


class Chain:
    """A program with its options, built anew for each iterator as another process would.

    Args:
        case: what to build.
        folder: for caches and manifests.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder, self.opened = case, folder, 0
        self.names: list[str] = []

    def open(self, run: str) -> Any:
        """An iterator of one run: caches in files, and the manifest, are the run's own."""
        caches = self.folder / run
        caches.mkdir(exist_ok=True)
        dataset, self.names = build(self.case.program, FILES[0], caches, self.case.options.on_error == "skip")
        self.opened += 1
        manifest = gp.Options(error_manifest=caches / "bad.jsonl", threads=1 + self.opened % 2)
        if self.case.known and self.opened > 1:
            manifest = manifest.merge(gp.Options(bad_records=self.folder / "first" / "bad.jsonl"))
        return dataset.with_options(self.case.options.merge(manifest)).epochs(self.case.epochs)

    def lose(self, run: str) -> None:
        """Delete the caches of a run."""
        for file in (self.folder / run).iterdir():
            if file.is_dir():
                shutil.rmtree(file)
            elif file.name != "bad.jsonl":
                file.unlink(missing_ok=True)  # a pass that is just ending removes its own

    def manifest(self, run: str) -> Counter[str]:
        """The bad elements that a run wrote down."""
        return Counter((self.folder / run / "bad.jsonl").read_text().splitlines())


FILES: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    FILES[:] = [folder]
    logging.getLogger("gpupipe").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("gpupipe").setLevel(logging.NOTSET)


def outcomes(items: Any, count: int) -> list[Any]:
    """What so many calls of `next` give, fewer at the end; an error is one of them, by its kind and text."""
    out: list[Any] = []
    while len(out) < count:
        try:
            out.append(plain(next(items)))
        except StopIteration:
            break
        except gp.DataError as error:
            out.append((type(error).__name__, str(error)))
        except gp.SpecError as error:  # what the first element tells does not fit: it ends here
            out.append(("SpecError", str(error)))
            break
    return out


def uninterrupted(chain: Chain) -> tuple[list[Any], int]:
    """What a run gives from the begin to the end, and how many elements were left out."""
    if chain.case.known:
        with chain.open("first") as items:
            outcomes(items, LONGEST + 1)
    with chain.open("whole") as items:
        return outcomes(items, LONGEST + 1), items.left_out


def walked(chain: Chain, length: int, run: str) -> tuple[list[Any], int, list[int]]:
    """What all iterators of a walk gave together, how many elements were left out, and where they took over."""
    found: list[Any] = []
    places = []
    items = chain.open(run)
    try:
        ends = [(LONGEST + 1, "go on"), (1, "go on")] if chain.case.seed % 4 == 0 else [(LONGEST + 1, "look")]
        for count, then in (*chain.case.walk, *ends):
            found += outcomes(items, count if count > LONGEST else count % (length + 2))
            state = through_json(items.state_dict())
            if then == "lose caches":
                chain.lose(run)
            if then == "look":
                continue
            places.append(len(found))
            for _ in range(1 + (count == 0)):  # perhaps by a state of a state
                items.close()
                items = chain.open(run)
                items.load_state_dict(state)
                state = through_json(items.state_dict()) if count == 0 else state
        assert not outcomes(items, 1)
        return found, items.left_out, places
    finally:
        items.close()


RAN: Counter[str] = Counter()
"""How many programs with a state in the middle held each part."""


def goes_on(case: Case, policies: Sequence[str] = POLICIES) -> None:
    """Compare a run with one that goes on again and again, under every policy."""
    wholes: list[Any] = []
    for policy in policies:
        with TemporaryDirectory() as folder, marked(policy, case.seed, case.small):
            chain = Chain(case, Path(folder))
            whole, left_out = uninterrupted(chain)
            if len(whole) > LONGEST or (whole and whole[-1][0] == "SpecError"):
                return
            wholes.append(whole)
            assert whole == wholes[0], f"marks change what comes: {policy}"
            found, left_out_then, places = walked(chain, len(whole), "walk")
            assert found == whole, policy
            if case.program.counts:
                assert left_out_then == left_out, policy
                assert chain.manifest("walk") == chain.manifest("whole"), policy
    if any(0 < place < len(whole) for place in places):
        RAN.update(set(chain.names))


def goes_on_in_any_order(case: Case) -> None:
    """The same of a chain that gives what is ready first: each element comes exactly once."""
    for policy in POLICIES:
        with TemporaryDirectory() as folder, marked(policy, case.seed, case.small):
            chain = Chain(case, Path(folder))
            whole, _ = uninterrupted(chain)
            if len(whole) > LONGEST:
                return
            try:
                found, _, places = walked(chain, len(whole), "walk")
            except gp.StateError as error:
                lost = any(then == "lose caches" for _, then in case.walk)
                allowed = ["what is ready first", "in any order", *(["filled as elements were ready"] if lost else [])]
                if not any(words in str(error) for words in allowed):
                    raise
                RAN["refused"] += 1
                return
            assert rows(found) == rows(whole), policy
    if any(0 < place < len(whole) for place in places):
        RAN.update(set(chain.names))


def rows(elements: list[Any]) -> Counter[Any]:
    """Every row of some batches, and every error."""
    found: Counter[Any] = Counter()
    for kind, leaves in elements:
        if isinstance(leaves, str):
            found[kind, leaves] += 1
            continue
        for dtype, _, data in leaves:
            found.update(np.frombuffer(data, dtype).tolist())
    return found


@dataclass(frozen=True)
class Case:
    """A program, and how it is run."""

    program: Program
    options: gp.Options
    epochs: int
    walk: Walk
    seed: int
    small: bool
    known: bool


def cases(count: int, make: Callable[[random.Random], Program], seed: int = 0, **options: Any) -> Iterator[Case]:
    """Random cases, the same ones each time."""
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        yield Case(
            make(rng),
            gp.Options(device="cpu", on_error=rng.choice(["raise", "skip", "replace"]), seed=rng.randint(0, 2)).merge(
                gp.Options(**options)
            ),
            rng.choice([1, 1, 2]),
            [(rng.choice([0, 1, 2, 3, 5, 9, 14]), rng.choice(ACTIONS)) for _ in range(rng.randint(1, 3))],
            number,
            rng.random() < 0.5,
            rng.random() < 0.1,
        )


def checked(case: Case, check: Callable[[Case], None]) -> None:
    """Check a case; an error says which one it was."""
    try:
        check(case)
    except Exception as error:
        raise AssertionError(f"{case}\n{type(error).__name__}: {error}") from error


@pytest.mark.timeout(3600 if FULL else 400)  # it computes all the time, and others may use the machine
@pytest.mark.programs
def test_random_chains_go_on_where_their_state_was_taken() -> None:
    RAN.clear()
    usual = sorted((SOURCES | STEPS) - {"overtaking", "overtaking interleave"})
    parts = cycle(usual)
    for case in cases(PROGRAMS, lambda rng: programs_with(next(parts), rng), backend="numpy"):
        checked(case, goes_on)
    rare = {name: RAN[name] for name in usual if RAN[name] < LEAST}
    assert not rare, f"these parts were run too rarely to be tested: {rare}"


GO = "go on"


def _found(source: Any, *steps: Any, on_error: Any, walk: Walk, small: bool = False) -> Case:
    options = gp.Options(device="cpu", backend="numpy", seed=1, on_error=on_error)
    return Case(Program(source, steps), options, 1, walk, 0, small, False)


FOUND = {
    "two steps say of one place what is wrong": _found(
        *[("fixed", "*.bin", None), ("assert", 2), ("parse text", (2, 2)), ("assert", 4)],
        on_error="skip",
        walk=[(3, GO)],
    ),
    "the number of a damaged record behind a reference": _found(
        *[("records", "*.tfrecord", None), ("shuffle", 2, 1, True)], on_error="raise", walk=[(14, GO)], small=True
    ),
    "what stands in for an image is the last good one of its batch's input": _found(
        *[("pictures", 40), ("decode", "crop"), ("image batch", 1, True), ("sample by a dataset", True)],
        on_error="replace",
        walk=[(4, GO)],
    ),
    "what two states say was noted is noted once": _found(
        *[("loaded", "gzip"), ("group", 3, 2, 2, (2, 0)), ("unbatch",)],
        ("flat_map", (("python", (4, 4)), ("endless", 27), ("python", (4, 4)))),
        on_error="skip",
        walk=[(2, GO), (9, GO)],
    ),
    "what is bad in a pass that was only looked at": _found(
        *[("loaded", "gzip"), ("group", 4, 4, 1, (5, 2)), ("concatenate", 4), ("choose", (1, 2, 2, 2, 0, 1, 0), False)],
        on_error="replace",
        walk=[(1, GO)],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_random_chains_found_stays_mended(name: str) -> None:
    goes_on(FOUND[name])


@pytest.mark.parametrize("backend", ["numpy", "dali"])
def test_random_chains_of_images_go_on(backend: Any) -> None:
    if backend == "dali":
        pytest.importorskip("nvidia.dali")
    RAN.clear()
    for case in cases(PROGRAMS // 8, lambda rng: programs(rng, 3, images=True), backend=backend):
        checked(case, goes_on)
    assert RAN["decode"] + RAN["parse and decode"] >= LEAST


def test_nothing_is_lost_or_comes_twice_in_any_order() -> None:
    RAN.clear()
    for case in cases(PROGRAMS // 6, free_programs, deterministic=False):
        if case.options.on_error == "replace":  # what stands in depends on the order
            case = replace(case, options=case.options.merge(gp.Options(on_error="skip")))
        checked(case, goes_on_in_any_order)
    assert RAN["overtaking"] >= LEAST
    assert RAN["overtaking interleave"] >= LEAST
