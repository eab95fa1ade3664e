"""One rank that loops over images with random crops: it prints a digest of each whole batch, of the rows of all ranks.

Arguments: the engine, the folder of the records, the epoch; for JAX the rank and the address of rank 0, too.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import ops
from tests.behaviour.rank_process import digest
from tests.chains import damage
from tests.chains.data import parse

BATCH, STEPS, SIZE = 8, 12, 12


def write(folder: Path) -> None:
    """Four files of images, one more than 12 batches have."""
    for i in range(4):
        numbers = range(i, BATCH * STEPS + 1, 4)
        damage.write(folder / f"{i}.tfrecord", [damage.example(n, damage.jpeg(n)) for n in numbers])


def crop(record: Any) -> Any:
    encoded, label = parse(record)
    image = ops.random_resized_crop(ops.decode_jpeg(encoded, channels=3), (SIZE, SIZE))
    return ops.random_brightness(ops.random_flip_left_right(image), 0.2), label


def chain(folder: Path) -> gp.Dataset:
    """12 batches of all ranks together, and a rest that is left out."""
    names = gp.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    records = names.interleave(gp.TFRecordDataset, cycle_length=2).shuffle(gp.ALL, seed=3)
    options = gp.Options(seed=5, device="cpu", backend="numpy")
    return records.map(crop).batch(BATCH, drop_remainder=True).prefetch(2).with_options(options)


def digest_of(parts: list[Any]) -> str:
    """The digest of a batch: row r of each round of rows is that of rank r."""
    rows = np.stack(parts, axis=1)
    return digest(rows.reshape(-1, *rows.shape[2:]))


def torch_ranks() -> tuple[int, Callable[[Any], list[Any]], Callable[[], None]]:
    """The rank, what gathers an array of each, and what ends the engine."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))

    def gather(own: Any) -> list[Any]:
        every = [torch.zeros(own.shape, dtype=torch.from_numpy(own).dtype) for _ in range(dist.get_world_size())]
        dist.all_gather(every, torch.from_numpy(own))
        return [part.numpy() for part in every]

    return dist.get_rank(), gather, dist.destroy_process_group


def jax_ranks(rank: int, address: str) -> tuple[int, Callable[[Any], list[Any]], Callable[[], None]]:
    """The rank, what gathers an array of each, and what ends the engine."""
    import jax
    from jax.experimental import multihost_utils

    jax.distributed.initialize(address, 2, rank, coordinator_bind_address=address, initialization_timeout=60)

    def gather(own: Any) -> list[Any]:
        return list(np.asarray(multihost_utils.process_allgather(own)))

    return rank, gather, jax.distributed.shutdown


def main() -> None:
    engine, folder, epoch, *rest = sys.argv[1:]
    rank, gather, end = torch_ranks() if engine == "torch" else jax_ranks(int(rest[0]), rest[1])
    own = chain(Path(folder)).by_rank()
    images, labels = [], []
    for image, label in own.iterator(epoch=int(epoch)):
        images.append(digest_of(gather(np.ascontiguousarray(image))))
        labels.append(digest_of(gather(np.asarray(label, np.int32))))
    print(json.dumps({"rank": rank, "images": images, "labels": labels}) + "\n", end="", flush=True)
    end()


if __name__ == "__main__":
    main()
