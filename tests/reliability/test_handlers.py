"""Handlers and filters of the user's `logging`: whatever they do, no element is lost and nothing waits for ever."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.log import logger

from .bad_records import BAD, photograph
from .resume import PATIENCE, in_time


def _fifths_fail(x: Any) -> Any:
    if int(x) % 5 == 2:
        raise ValueError("a fifth")
    return x + 0


def numbers() -> Dataset:
    """0 to 19; 2, 7, 12 and 17 fail."""
    return Dataset.range(20).map(_fifths_fail, traced=False)


def pictures() -> Dataset:
    """Eight numbered images, of which only the decoder notices that 2 and 5 are bad."""
    data = [BAD["DQT removed"](i) if i in (2, 5) else photograph(i) for i in range(8)]
    return Dataset.from_tensor_slices((data, np.arange(8)))


def _decoded(encoded: Any, number: Any) -> Any:
    return ops.resize(ops.decode_jpeg(encoded, channels=3), (8, 8)), number


def _nested(x: Any) -> Any:
    inner = numbers().skip(x).take(4).batch(2).prefetch(1).with_options(Options(on_error="skip"))
    return int(sum(batch.sum() for batch in inner))


NUMBERS = [x for x in range(20) if x % 5 != 2]
CHAINS: dict[str, tuple[Callable[[], Dataset], list[int]]] = {
    "elements": (lambda: numbers(), NUMBERS),
    "prefetch": (lambda: numbers().batch(4).prefetch(2).unbatch(), NUMBERS),
    "ignore_errors": (lambda: numbers().ignore_errors(log_warning=True).prefetch(1), NUMBERS),
    "map in threads": (
        lambda: Dataset.range(20).map(_fifths_fail, traced=False, num_parallel_calls=2).batch(4).prefetch(1).unbatch(),
        NUMBERS,
    ),
    "images": (lambda: pictures().map(_decoded).batch(3).unbatch().map(lambda _, n: n), [0, 1, 3, 4, 6, 7]),
    "images, of a batch": (lambda: pictures().batch(4).map(_decoded).unbatch().map(lambda _, n: n), [0, 1, 3, 4, 6, 7]),
    "an iterator in a function": (
        lambda: Dataset.range(2).map(_nested, traced=False).prefetch(1),
        [0 + 1 + 3, 1 + 3 + 4],
    ),
}


class Doing(logging.Handler):
    """Does something with each record, and does it while the handler's lock is held."""

    def __init__(self, what: Callable[[logging.LogRecord], Any]) -> None:
        super().__init__()
        self.what = what

    def emit(self, record: logging.LogRecord) -> None:
        self.what(record)


@contextlib.contextmanager
def handled(what: Callable[[logging.LogRecord], Any]) -> Iterator[None]:
    """A handler of the user's, for a moment."""
    log, handler = logging.getLogger("gpupipe"), Doing(what)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@pytest.fixture(params=CHAINS)
def chain(request: pytest.FixtureRequest) -> tuple[Dataset, list[int]]:
    """A chain with bad elements, and the good ones as numbers."""
    make, good = CHAINS[str(request.param)]
    return make().with_options(Options(on_error="skip", device="cpu", backend="numpy", threads=2)), good


def taken(items: Any) -> list[int]:
    """All that is left, as numbers; an error that is no end of the elements fails the test."""
    return [int(x) for x in items]


# ---- what raises


def raises(_: logging.LogRecord) -> None:
    raise LookupError("of a handler")


def refuses(_: logging.LogRecord) -> bool:
    raise LookupError("of a filter")


def test_a_handler_or_a_filter_that_raises_loses_no_element(
    chain: tuple[Dataset, list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, good = chain
    log = logging.getLogger("gpupipe")

    with handled(raises):
        items = iter(dataset)
        assert taken(items) == good

    shown = capsys.readouterr().err
    assert "LookupError: of a handler" in shown
    assert "Message: '%s: %s (%d so far)'" in shown
    log.addFilter(refuses)
    try:
        assert taken(iter(dataset)) == good
    finally:
        log.removeFilter(refuses)
    assert "LookupError: of a filter" in capsys.readouterr().err


def test_what_could_not_be_logged_is_listed_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "bad.jsonl"
    items = iter(numbers().batch(4).prefetch(2).with_options(Options(on_error="skip", error_manifest=manifest)))

    with handled(raises):
        list(items)

    assert [record.offset for record in items.errors] == [2, 7, 12, 17]
    assert items.left_out == len(manifest.read_text().splitlines()) == 4
    assert capsys.readouterr().err.count("LookupError: of a handler") == 4


def test_a_handler_that_raises_shows_nothing_where_logging_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    with handled(raises):
        assert taken(numbers().with_options(Options(on_error="skip")).prefetch(1)) == NUMBERS

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("way", ["elements", "prefetch", "images, of a batch"])
def test_a_handler_that_ends_the_program_ends_it(way: str) -> None:
    def leaves(_: logging.LogRecord) -> None:
        raise SystemExit(3)

    dataset = CHAINS[way][0]().with_options(Options(on_error="skip", device="cpu", backend="numpy"))

    with handled(leaves), pytest.raises(SystemExit) as caught:
        list(dataset)
    assert caught.value.code == 3


def test_a_record_names_who_speaks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gpupipe")
    for say in (logger.info, logger.warning, logger.error):
        say("%s of %s", "some", "thing")

    assert [record.funcName for record in caplog.records] == ["test_a_record_names_who_speaks"] * 3
    assert [record.filename for record in caplog.records] == [Path(__file__).name] * 3
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "ERROR"]
    assert caplog.messages == ["some of thing"] * 3


# ---- what asks the iterator

ASKS: dict[str, Callable[[Any], Any]] = {
    "state_dict": lambda items: items.state_dict(),
    "next": lambda items: next(items),
    "errors": lambda items: items.errors,
    "left_out": lambda items: items.left_out,
    "memory_report": lambda items: items.memory_report(),
    "stats": lambda items: items.stats(),
}
REFUSED = ("state_dict", "next")


@pytest.mark.parametrize("what", ASKS)
def test_a_handler_may_ask_the_iterator(what: str, chain: tuple[Dataset, list[int]]) -> None:
    """What cannot be answered inside `next` is refused with a typed error; nothing waits, and no element is lost."""
    dataset, good = chain
    items = iter(dataset)
    answers: list[Any] = []

    def ask(_: logging.LogRecord) -> None:
        try:
            answers.append(ASKS[what](items))
        except Exception as error:
            answers.append(error)

    with handled(ask):
        assert in_time(lambda: taken(items)) == good

    assert answers
    assert all(isinstance(answer, gp.PlanError) == (what in REFUSED) for answer in answers)


def until_closed(items: Any) -> Iterator[Any]:
    with contextlib.suppress(gp.ClosedError):
        yield from items


def test_a_handler_may_close_the_iterator(chain: tuple[Dataset, list[int]]) -> None:
    dataset, good = chain
    items = iter(dataset)

    with handled(lambda _: items.close()):
        got = in_time(lambda: taken(until_closed(items)))

    assert got == good[: len(got)]
    with pytest.raises(gp.ClosedError, match="was closed"):
        next(items)


def _no_room(*_: Any) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("prefetch", [False, True], ids=["inline", "prefetch"])
def test_a_handler_may_ask_when_the_manifest_cannot_be_written(
    prefetch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From another thread, too: a handler holds its own lock, and others log while it waits."""
    dataset = numbers().batch(4).prefetch(1) if prefetch else numbers().batch(4)
    options = Options(on_error="skip", error_manifest=str(tmp_path / "bad.jsonl"))
    items = iter(dataset.with_options(options))
    seen: list[int] = []
    monkeypatch.setattr("gpupipe.flow.bad.records.os.write", _no_room)

    def ask(record: logging.LogRecord) -> None:
        if record.levelno == logging.ERROR:
            asker = threading.Thread(target=lambda: seen.append(len(items.errors)), daemon=True)
            asker.start()
            asker.join(PATIENCE)

    with handled(ask):
        assert sum(len(batch) for batch in items) == 16  # a full disk ends no training
    assert seen == [1, 2, 4]
    assert len(items.errors) == 4
    assert "lacks 1 bad records, it cannot be written" in caplog.text


def test_a_handler_may_ask_while_a_manifest_is_read(tmp_path: Path) -> None:
    manifest = tmp_path / "bad.jsonl"
    list(numbers().with_options(Options(on_error="skip", error_manifest=str(manifest))))
    manifest.write_bytes(manifest.read_bytes()[:-30])
    items = iter(numbers().with_options(Options(on_error="skip", bad_records=str(manifest))))
    said: list[str] = []

    def ask(record: logging.LogRecord) -> None:
        said.append(record.getMessage())
        assert len(items.errors) == items.left_out

    with handled(ask):
        assert in_time(lambda: taken(items)) == NUMBERS
    assert any("line 4 is torn" in text for text in said)


@pytest.mark.parametrize("prefetch", [False, True], ids=["inline", "prefetch"])
def test_a_function_that_iterates_may_not_ask_for_what_waits_for_it(prefetch: bool) -> None:
    """The inner chain's thread would wait for the outer iterator, which waits for the function, which waits for it."""
    refused: list[str] = []

    def ask(x: Any) -> Any:
        for question in ("next", "state_dict"):
            try:
                ASKS[question](items)
            except gp.PlanError:
                refused.append(question)
        return x

    def iterates(x: Any) -> Any:
        return sum(int(y) for y in Dataset.range(2).map(ask, traced=False).prefetch(1))

    dataset = Dataset.range(2).map(iterates, traced=False)
    items = iter(dataset.prefetch(2) if prefetch else dataset)

    assert in_time(lambda: taken(items)) == [1, 1]
    assert refused == ["next", "state_dict"] * 4


def test_what_is_logged_once_is_known_by_what_it_is_about_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 1, 2):
        logger.warning_once("%d files", number)
    for number in (3, 4):
        logger.warning_once("%d files", number, about="files")
    for number in range(5, 600):
        logger.warning_once("%d files", number)
    logger.warning_once("%d files", 1)  # forgotten meanwhile

    said = [int(record.getMessage().split()[0]) for record in caplog.records]
    assert said == [1, 2, 3, *range(5, 600), 1]
    assert len(logger._warned) <= 256
    assert {record.filename for record in caplog.records} == {"test_handlers.py"}
