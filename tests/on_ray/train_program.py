"""The example for Ray Train, whose second worker is killed twice; prints as JSON what each was given."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpupipe as gp
from gpupipe.comparison.photographs import write_shards
from tests.tensors.test_examples import TRAINING

EXAMPLE = Path(__file__).resolve().parents[2] / "gpupipe" / "guide" / "examples" / "ray_train.py"
DIES_AT = (5, 8)
"""The batches, from 1, after which the second worker is killed: of epochs of 6."""

SAVED = (3, 6)
"""Batches that the last checkpoint before that has, as one is saved every 3 steps: inside an epoch, and at its end."""


def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("ray_train", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Watched:
    """A chain whose loader notes in a file what it gives, and ends its process once."""

    def __init__(self, ds: Any, folder: Path, rank: int) -> None:
        self._ds, self._folder, self._rank = ds, folder, rank

    def as_torch(self, device: Any) -> Watched:
        self._ds = self._ds.as_torch(device)
        return self

    def state_dict(self) -> Any:
        return self._ds.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self._ds.load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:
        given = self._folder / f"rank-{self._rank}"
        for images, labels in self._ds:
            with open(given, "a") as file:
                print(json.dumps({"pid": os.getpid(), "labels": labels.tolist()}), file=file)
            # a second process begins behind the first checkpoint
            if self._rank == 1 and len(given.read_text().splitlines()) in (DIES_AT[0], sum(DIES_AT) - SAVED[0]):
                os.kill(os.getpid(), signal.SIGKILL)
            yield images, labels


def train(settings: dict[str, Any]) -> None:
    """Train one worker's part as the example does, and note it."""
    import ray.train

    module, folder = example(), Path(settings.pop("folder"))
    rank, batches = ray.train.get_context().get_world_rank(), module.batches
    told = {"loader": [batch.tolist() for batch in settings.pop("loader")]}
    module.batches = lambda args: Watched(batches(args), folder, rank)
    module.train(settings)
    items = iter(gp.Dataset.range(11).batch(4).by_rank(remainder="pad").as_torch())
    told["evaluated"] = [int(row) for batch in items for row, good in zip(batch, items.valid, strict=True) if good]
    (folder / f"told-{rank}").write_text(json.dumps(told))


def main(folder: Path) -> dict[str, Any]:
    """Train two epochs with two workers; return what each was given, by process, and how the run ended."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    (folder / "seen").mkdir()
    settings = {"data": f"{folder}/*.tfrecord", "epochs": 2, "batch": 8, "size": 32, "save_every": 3, "steps": None}
    settings |= {"checkpoint": str(folder / "run.pt"), "folder": str(folder / "seen")}
    settings["loader"] = gp.Dataset.range(6).map(lambda x: x + 1).batch(2).as_torch()
    write_shards(folder, count=48, shards=4)
    address: dict[str, Any] = {"_node_ip_address": "127.0.0.1", "_temp_dir": os.environ["RAY_TEST_FOLDER"]}
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=256 << 20, log_to_driver=False, **address)
    result = TorchTrainer(
        train,
        train_loop_config=settings,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(folder / "results"), failure_config=FailureConfig(max_failures=3)),
    ).fit()
    ray.shutdown()
    seen = [
        [json.loads(line) for line in (folder / "seen" / f"rank-{rank}").read_text().splitlines()] for rank in (0, 1)
    ]
    told = [json.loads((folder / "seen" / f"told-{rank}").read_text()) for rank in (0, 1)]
    (labels,) = (one for one in TRAINING if one.name == "ray_train")
    wanted = [[batch for epoch in (0, 1) for batch in labels.expected(folder, rank, epoch)] for rank in (0, 1)]
    return {"error": str(result.error or ""), "seen": seen, "wanted": wanted, "told": told}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)
