"""The example for Ray Train, whose second worker is killed in the middle; prints as JSON what each was given."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpupipe.comparison.photographs import write_shards

EXAMPLE = Path(__file__).resolve().parents[2] / "gpupipe" / "guide" / "examples" / "ray_train.py"
DIES_AT = 8
"""The batch, from 1, that the second worker takes last."""

SAVED = 6
"""Batches that the last checkpoint before that has: one is saved every 3 steps."""


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
        killed, given = self._folder / "killed", self._folder / f"rank-{self._rank}"
        for images, labels in self._ds:
            with open(given, "a") as file:
                print(json.dumps({"pid": os.getpid(), "labels": labels.tolist()}), file=file)
            if self._rank == 1 and len(given.read_text().splitlines()) == DIES_AT and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield images, labels


def train(settings: dict[str, Any]) -> None:
    """Train one worker's part as the example does, and note it."""
    import ray.train

    module, folder = example(), Path(settings.pop("folder"))
    rank, batches = ray.train.get_context().get_world_rank(), module.batches
    module.batches = lambda args: Watched(batches(args), folder, rank)
    module.train(settings)


def main(folder: Path) -> dict[str, Any]:
    """Train two epochs with two workers; return what each was given, by process, and how the run ended."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    (folder / "seen").mkdir()
    settings = {"data": f"{folder}/*.tfrecord", "epochs": 2, "batch": 8, "size": 32, "save_every": 3, "steps": None}
    settings |= {"checkpoint": str(folder / "run.pt"), "folder": str(folder / "seen")}
    write_shards(folder, count=44, shards=4)
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
    return {"error": str(result.error or ""), "seen": seen, "killed": (folder / "seen" / "killed").exists()}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)
