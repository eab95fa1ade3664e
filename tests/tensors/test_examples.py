"""The examples of the guide train, are stopped, and continue in the middle of an epoch as if they had not been."""

from __future__ import annotations

import csv
import json
import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.comparison.photographs import write_shards
from tests.chains.data import ROOT, records
from tests.tensors.launch import free_ports, run

EXAMPLES = ROOT / "gpupipe" / "guide" / "examples"
EPOCHS, SAVED, STOPPED, BATCHES = 3, 7, 9, 5  # the second epoch is broken off, and continued after 2 of its 5

pytestmark = pytest.mark.timeout(240)  # programs that import a framework, two at a time


@dataclass(frozen=True)
class Example:
    """One that trains.

    Attributes:
        name: of its file.
        needs: the package without which it cannot run.
        out: its option for where the checkpoint goes, and the end of such a name.
        ranks: how many processes train.
        whole: whether ranks divide batches, as under Accelerate, not images.
        shared: whether ranks divide the rows of each batch, as under `by_rank`.
        more: further arguments.
    """

    name: str
    needs: str
    out: tuple[str, str]
    ranks: int = 1
    whole: bool = False
    shared: bool = False
    more: tuple[str, ...] = ()

    @property
    def batch(self) -> int:
        return 8 // self.ranks

    @property
    def given(self) -> int:
        """What it is told as the size of a batch."""
        return 8 if self.shared else self.batch

    def expected(self, data: Path, rank: int, epoch: int) -> list[list[int]]:
        """The labels of a rank's batches, as NumPy has them."""
        files = gp.Dataset.list_files(f"{data}/*.tfrecord", shuffle=not self.shared, seed=1)
        ds = files.interleave(gp.TFRecordDataset, cycle_length=8).shuffle(gp.ALL if self.shared else 10_000, seed=1)
        if not self.whole and not self.shared:
            ds = ds.shard(self.ranks, rank, even="drop")
        features = {"image/class/label": gp.io.FixedLenFeature((), "int64")}
        labels = ds.map(lambda record: gp.io.parse_single_example(record, features)["image/class/label"])
        batches = [batch.tolist() for batch in labels.batch(self.given, drop_remainder=True).iterator(epoch=epoch)]
        if self.shared:
            return [batch[rank :: self.ranks] for batch in batches]
        if not self.whole:
            return batches
        return batches[rank : len(batches) // self.ranks * self.ranks : self.ranks]  # whole rounds


TRAINING = [
    Example("pytorch", "torch", ("--checkpoint", ".pt")),
    Example("ddp", "torch", ("--checkpoint", ".pt"), ranks=2),
    Example("ray_train", "ray.train", ("--checkpoint", ".pt"), ranks=2, shared=True, more=("--workers", "0")),
    Example("lightning_fit", "lightning", ("--folder", ""), ranks=2, more=("--devices", "2")),
    Example("accelerate_loop", "accelerate", ("--folder", ""), ranks=2, whole=True),
    Example("jax_flax", "flax", ("--folder", "")),
    Example("keras_fit", "keras", ("--checkpoint", ".keras")),
]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 44 drawn photographs in 4 files."""
    folder = tmp_path_factory.mktemp("photographs")
    write_shards(folder, count=44, shards=4)
    return folder


def runs_of(name: str, *lists: list[str], out: Path, ranks: int = 1, torchrun: bool = False) -> list[Any]:
    """What the runs of an example were given and printed, by rank."""
    environment = {"OUT": str(out), "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax", "ACCELERATE_USE_CPU": "true"}
    environment["RAY_worker_niceness"] = "0"  # 15 as a rule: beside other tests its workers would hardly run
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    if ranks > 1:
        environment["PORTS"] = " ".join(free_ports(len(lists)))
    words = [name, *map(json.dumps, lists)]
    return [one["runs"] for one in run("example", *words, ranks=ranks, torchrun=torchrun, **environment)]


@pytest.mark.parametrize("example", TRAINING, ids=lambda example: example.name)
def test_a_stopped_run_ends_as_one_that_was_not_stopped(example: Example, photographs: Path, tmp_path: Path) -> None:
    pytest.importorskip(example.needs, exc_type=ImportError)
    option, suffix = example.out
    common = [f"{photographs}/*.tfrecord", "--epochs", str(EPOCHS), "--batch", str(example.given), "--size", "32"]
    common += ["--save-every", str(SAVED), *example.more, option]
    if example.needs == "lightning":  # a validation between the epochs moves nothing; its last batch has fewer rows
        common += [str(tmp_path / "run"), "--val", f"{photographs}/*-00000-*", option]
    batches = BATCHES if not example.whole else 44 // example.batch // example.ranks

    whole, stopped = [*common, f"{tmp_path}/whole{suffix}"], [*common, f"{tmp_path}/stopped{suffix}"]
    words = whole, [*stopped, "--steps", str(STOPPED)], stopped
    found = runs_of(example.name, *words, out=tmp_path, ranks=example.ranks, torchrun=example.name == "ddp")

    for rank, runs in enumerate(found):
        every = [batch for epoch in range(EPOCHS) for batch in example.expected(photographs, rank, epoch)]
        assert len(every) == EPOCHS * batches
        seen = [[b for _, part in one["given"] for b in part if len(part[-1]) == example.batch] for one in runs]
        assert seen == [every, every[:STOPPED], every[SAVED:]]
        assert [epoch for epoch, part in runs[2]["given"] if len(part[-1]) == example.batch] == [SAVED // batches, 2]
    losses = [re.findall(r"loss:? (\d+\.\d+)", "\n".join(one["printed"])) for one in found[0]]
    assert losses[0][-1] == losses[2][-1]


def test_a_folder_is_classified_to_its_end_by_two_runs(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    torch.manual_seed(0)
    torch.save({"model": runpy.run_path(str(EXAMPLES / "pytorch.py"))["network"]().state_dict()}, tmp_path / "run.pt")
    (tmp_path / "photos" / "some").mkdir(parents=True)
    for number, (data, _) in enumerate(records(sorted(photographs.iterdir()))[:20]):
        (tmp_path / "photos" / "some" / f"{number:02}.jpg").write_bytes(data if number != 3 else b"no image")
    common = [f"{tmp_path}/photos", "--checkpoint", f"{tmp_path}/run.pt", "--batch", "4", "--size", "32"]
    common += ["--save-every", "2", "--out"]

    first, again = [*common, f"{tmp_path}/whole.csv"], [*common, f"{tmp_path}/stopped.csv"]
    ((whole, stopped, rest),) = runs_of("infer_folder", first, [*again, "--steps", "3"], again, out=tmp_path)

    names = [f"{tmp_path}/photos/some/{number:02}.jpg" for number in range(20) if number != 3]
    rows = list(csv.reader((tmp_path / "whole.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == names
    assert (tmp_path / "stopped.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert [len(one["given"][0][1]) for one in (whole, stopped, rest)] == [5, 3, 3]
    assert whole["printed"] == [f"{tmp_path}/whole.csv: complete, 1 files left out"]
    (bad,) = map(json.loads, Path(f"{tmp_path}/whole.csv.bad.jsonl").read_text().splitlines())
    assert bad["file"] == f"{tmp_path}/photos/some/03.jpg"
