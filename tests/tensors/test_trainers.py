"""The table of trainers: what each does with a loader, told by programs that run once for all tests together."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.docs.test_pages import GUIDE
from tests.on_ray.sessions import shared as on_ray
from tests.selection import QUICK
from tests.tensors.launch import ON_JAX, expected, shared
from tests.tensors.programs import chain

pytestmark = [
    pytest.mark.timeout(330),  # programs that import a framework, two at a time, for which other tests wait
    pytest.mark.skipif(QUICK, reason="takes ten seconds and more for each program"),
]

Found = list[dict[str, Any]]
"""What a program told, by rank."""

Cell = Callable[[Found], tuple[Any, Any]]
"""What was seen, and what is right."""


def told(column: str, trainer: str = "") -> Cell:
    """A cell that the program itself tells, on every rank that has it."""

    def cell(found: Found) -> tuple[Any, Any]:
        cells = [one["cells"][trainer][column] for one in found if column in one["cells"].get(trainer, {})]
        return [seen for seen, _ in cells], [right for _, right in cells]

    return cell


def pair(name: str) -> Cell:
    """A pair that the program tells under a name."""
    return lambda found: (found[0][name][0], found[0][name][1])


def true(name: str, *keys: str) -> Cell:
    """Answers that are all to be true; of a dict those of some keys, if they are given."""

    def cell(found: Found) -> tuple[Any, Any]:
        answers: Any = found[0][name]
        answers = [answers[key] for key in keys or answers] if isinstance(answers, dict) else answers
        return answers, [True] * len(answers)

    return cell


def numbers(rank: int, *epochs: int) -> list[list[list[int]]]:
    """The batches of one of two ranks under Accelerate, which completes a last round with one from the start."""
    return [[*every, every[0]][rank::2] for every in map(expected, epochs)]


def of_ranks(seen: Callable[[dict[str, Any]], Any], right: Callable[[int], Any]) -> Cell:
    """What each rank saw, and what is right for it."""
    return lambda found: (list(map(seen, found)), list(map(right, range(len(found)))))


def sums(epoch: int) -> list[int]:
    """The sums of the batches of two ranks together."""
    every = expected(epoch)[:10]
    return [sum(a) + sum(b) for a, b in zip(every[::2], every[1::2], strict=True)]


def processes(found: Found) -> list[list[Any]]:
    """What the three processes of each worker of Ray Train were given, the first, the second and the third of both."""
    begun: list[list[Any]] = [[], [], []]
    for seen in found[0]["seen"]:
        for at, pid in enumerate(dict.fromkeys(one["pid"] for one in seen)):
            begun[at].append([one["labels"] for one in seen if one["pid"] == pid])
    return begun


def whole(name: str, count: int) -> Callable[[dict[str, Any]], list[Any]]:
    """The passes of all batches in Keras, which looks at some before."""
    return lambda one: [batches for batches in one[name] if len(batches) == 11][-count:]


def mean_loss() -> float:
    """What Keras evaluates over all rows."""
    return round(float(np.mean([np.abs(x * y[:, None]).mean() for x, y in chain().iterator(epoch=0)])), 4)


KERAS: dict[str, Cell] = {
    "epochs": of_ranks(whole("train", 3), lambda rank: [expected(epoch) for epoch in range(3)]),
    "inside": of_ranks(lambda one: one["rest"][-1], lambda rank: expected(1)[4:]),
    "end": of_ranks(whole("after_end", 2), lambda rank: [expected(2), expected(3)]),
    "predict": pair("predicted"),
}
KERAS_RANKS: dict[str, Cell] = {
    "ranks": lambda found: ([round(loss, 4) for loss in found[0]["evaluated"]], [mean_loss()] * 2)  # sums of float32
}

Program = tuple[tuple[str, ...], int, dict[str, str], dict[str, Cell]]
"""A program and its arguments, how many processes run it, their variables, and the cells that it tells."""


def of_torch(trainer: str, *columns: str) -> Program:
    return ("on_torch",), 1, {}, {column: told(column, trainer) for column in columns}


TRAINERS: dict[str, list[Program]] = {
    "pytorch": [of_torch("pytorch", "epochs", "inside", "end", "spawn")],
    "ddp": [of_torch("ddp", "epochs", "inside", "end", "ranks", "spawn")],
    "lightning": [
        (("on_lightning",), 1, {}, {
            "epochs": pair("epochs"),
            "inside": true("resumed", "2 2", "2 4", "2 8", "2 10", "3 3", "3 9", "half epochs"),
            "end": true("resumed", "None 6", "None 12", "2 6", "2 12", "3 6", "3 12", "6 6", "6 12", "after fit"),
            "ranks": pair("ranks"),
            "predict": true("predicted"),
            "spawn": pair("spawned"),
        })
    ],
    "fabric": [
        (("on_lightning",), 1, {}, {
            "epochs": pair("fabric"),
            "inside": lambda found: tuple(found[0]["fabric_from"]["2"]),
            "end": lambda found: tuple(found[0]["fabric_from"]["6"]),
        })
    ],
    "accelerate": [
        (("on_accelerate",), 2, {}, {
            "epochs": of_ranks(lambda one: [one["batches"], one["next"]], lambda rank: numbers(rank, 0, 1)),
            "inside": of_ranks(lambda one: [one["rest"]], lambda rank: [numbers(rank, 0)[0][3:]]),
            "end": of_ranks(lambda one: [one["end"]], lambda rank: numbers(rank, 2)),
        }),
        (("on_metrics", "0", "12"), 2, {}, {
            "ranks": of_ranks(lambda one: [one["cases"], one["wrong"]], lambda rank: [75, []]),
        }),
    ],
    "transformers": [
        (("on_transformers", "train"), 1, {}, {
            "epochs": pair("epochs"), "inside": true("resumed", "4", "9", "14"), "end": true("resumed", "6", "12"),
        }),
        (("on_transformers", "evaluate"), 2, {}, {
            "ranks": of_ranks(lambda one: [one["rows"], one["each"]], lambda rank: [50, True]),
            "predict": of_ranks(lambda one: one["predicted"][0], lambda rank: list(range(50))),
        }),
    ],
    "dcp": [of_torch("dcp", "inside", "end")],
    "torchtitan": [of_torch("torchtitan", "epochs", "inside", "end", "ranks")],
    "keras-tensorflow": [(("on_keras",), 1, {"KERAS_BACKEND": "tensorflow", **ON_JAX}, KERAS | KERAS_RANKS)],
    "keras-jax": [(("on_keras",), 1, {"KERAS_BACKEND": "jax", **ON_JAX}, KERAS | KERAS_RANKS)],
    "keras-torch": [(("on_keras",), 1, {"KERAS_BACKEND": "torch", **ON_JAX}, KERAS)],
    "jax": [
        (("on_jax",), 2, ON_JAX, {
            "epochs": of_ranks(lambda one: [one["sums"], one["next"]], lambda rank: [sums(0), sums(1)]),
            "inside": of_ranks(lambda one: one["rest"], lambda rank: [sums(0)[2:], sums(1)]),
            "end": of_ranks(lambda one: one["end"], lambda rank: [sums(1), sums(2)]),
            "ranks": lambda found: (sorted(row for one in found for row in one["evaluated"]), list(range(42))),
        })
    ],
    "ray-train": [
        (("train_program",), 2, {}, {
            "epochs": lambda found: (processes(found)[2], [wanted[6:] for wanted in found[0]["wanted"]]),
            "inside": lambda found: (
                [batches[:3] for batches in processes(found)[1]], [wanted[3:6] for wanted in found[0]["wanted"]],
            ),
            "end": lambda found: (
                [batches[:6] for batches in processes(found)[2]], [wanted[6:12] for wanted in found[0]["wanted"]],
            ),
            "ranks": lambda found: (
                sorted(row for one in found[0]["told"] for row in one["evaluated"]), list(range(11)),
            ),
            "spawn": lambda found: ([one["loader"] for one in found[0]["told"]], [[[1, 2], [3, 4], [5, 6]]] * 2),
        })
    ],
}  # fmt: skip
"""By trainer, the programs that tell its cells."""

NEEDS = {
    "pytorch": "torch", "ddp": "torch", "dcp": "torch", "torchtitan": "torch", "fabric": "lightning",
    "keras-tensorflow": "keras tensorflow", "keras-jax": "keras jax", "keras-torch": "keras torch",
    "ray-train": "ray torch pyarrow",
}  # fmt: skip
"""The packages that a trainer needs, where they are not its name."""


def cells(column: str) -> pytest.MarkDecorator:
    """A test of a column, for each trainer that has it."""
    having = [name for name, programs in TRAINERS.items() if any(column in one for *_, one in programs)]
    return pytest.mark.parametrize("trainer", having)


Check = Callable[[str, str], None]


@pytest.fixture
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    def of(trainer: str, column: str) -> None:
        for needed in NEEDS.get(trainer, trainer).split():
            pytest.importorskip(needed)
        ((words, ranks, variables, cells),) = (one for one in TRAINERS[trainer] if column in one[-1])
        if trainer == "ray-train":
            found = [on_ray(tmp_path_factory, words[0])]
        else:
            found = shared(tmp_path_factory, *words, ranks=ranks, variables=variables)
        seen, right = cells[column](found)
        assert right and seen == right

    return of


@cells("epochs")
def test_each_epoch_draws_anew(check: Check, trainer: str) -> None:
    check(trainer, "epochs")


@cells("inside")
def test_a_run_resumes_inside_an_epoch(check: Check, trainer: str) -> None:
    check(trainer, "inside")


@cells("end")
def test_a_run_resumes_at_the_end_of_an_epoch(check: Check, trainer: str) -> None:
    check(trainer, "end")


@cells("ranks")
def test_an_evaluation_on_ranks_counts_each_row_once(check: Check, trainer: str) -> None:
    check(trainer, "ranks")


@cells("predict")
def test_a_prediction_has_each_row_once(check: Check, trainer: str) -> None:
    check(trainer, "predict")


@cells("spawn")
def test_a_loader_is_given_to_processes_that_are_spawned(check: Check, trainer: str) -> None:
    check(trainer, "spawn")


def test_each_cell_of_the_page_is_a_test_or_says_why_there_is_none() -> None:
    columns = {"epochs", "inside", "end", "ranks", "predict", "spawn"}
    tests = {f"{column}[{name}]" for name, programs in TRAINERS.items() for *_, cells in programs for column in cells}
    page = (GUIDE / "trainers.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+\[[\w-]+\])`", page)

    assert set(named) == tests and len(tests) >= 45
    assert {test.partition("[")[0] for test in tests} == columns
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| \w", line)]
    assert [len(row) for row in table] == [1 + len(columns)] * len(TRAINERS)
    for trainer, *row in table:
        for cell in row:
            assert re.search(r"`\w+\[[\w-]+\]`|no such thing in \w", cell), (trainer, cell)


def test_lightning_makes_loaders_again_and_validates_what_is_good(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("lightning")
    (found,) = shared(tmp_path_factory, "on_lightning")

    assert len(found["resumed"]) >= 14 and found["reloaded"]
    assert "strict_states=False" in found["refused"] and found["ignored"]
    assert found["overfit"] == [True, True]
    assert found["validated"] == 2 * 4  # batches, of the 7 good elements: the number with the bad ones is 5


ROWS = [[], [0]], [[0, 1], [0, 1, 2]], [[0, 1, 2, 3]] * 2
"""Three batches of ragged rows, the last completed."""
SIZES = {2: [[ROWS[0], ROWS[2]], [ROWS[1], ROWS[0]]], 4: [[ROWS[0]], [ROWS[1]], [ROWS[2]], [ROWS[0]]]}
"""By ranks, those of each."""


@pytest.mark.parametrize(("ranks", "part"), [(2, 0), (4, 5)])
def test_an_evaluation_under_accelerate_counts_each_row_once(
    ranks: int, part: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("accelerate")

    for found in shared(tmp_path_factory, "on_metrics", str(part), "12", ranks=ranks):
        assert found["cases"] == 75 and found["wrong"] == []
        assert found["by_rank"] == list(range(8 * ranks))
        assert found["sizes"] == [SIZES[ranks][found["rank"]]] * 2  # ragged rows, and lists of them
        shard, padded = found["refused"]
        assert re.search(rf"prepare needs the batches of all ranks.*shard\({ranks}, .*leave shard out", shard)
        assert re.search(r"by_rank\(remainder='drop'\), got by_rank\(.*leave by_rank out", padded)


def test_transformers_trainer_is_refused_inside_an_epoch_without_the_callback_and_trains_detectors(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pytest.importorskip("transformers")
    (found,) = shared(tmp_path_factory, "on_transformers", "train")

    inside = {"4", "9", "14"}
    assert {step for step, one in found["plain"].items() if one is True} == set(found["plain"]) - inside
    assert all("skip_first_batches needs the epoch" in found["plain"][step] for step in inside)
    assert 0 < found["detected"] < 100


def test_a_checkpoint_of_two_ranks_is_loaded_by_others_where_ranks_hold_nothing_and_else_refused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pytest.importorskip("torch")
    found = [one["cells"]["dcp"] for one in shared(tmp_path_factory, "on_torch") if "dcp" in one["cells"]]

    assert len(found) == 2
    for rank, cells in enumerate(found):
        for name in ("inside, one rank", "end, one rank", "shard", *(["held"] if rank == 0 else [])):
            seen, right = cells[name]
            assert seen[: len(right)] == right and right
        for name, other in (("held", "shard(2, 1"), ("held, one rank", "shard(1, 0"))[rank == 0 :]:
            ((text,), _) = cells[name]
            assert re.search(
                rf"needs a state of this chain, got one whose .* shard\(2, 0.*this one has {re.escape(other)}", text
            )
