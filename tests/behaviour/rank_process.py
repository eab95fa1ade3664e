"""One rank of torch.distributed or of JAX: it does tasks in turn over `by_rank` or `shard`, and prints what each gave.

Arguments: the engine, where its ranks meet (for JAX behind the rank and "@"), and the tasks.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import ops
from tests.chains import damage
from tests.chains.data import parse

Ranks = tuple[int, int, Callable[[Any], list[Any]], Callable[[], None]]
"""The rank, how many there are, what gathers an array of each, and what ends the engine."""

IMAGE_BATCHES = 12


def drawn(x: Any, rng: np.random.Generator) -> Any:
    """An element with random numbers of its own, like a random crop."""
    return np.array([float(int(x)), rng.random()])


def chain(batch: int = 64, seed: int = 1) -> gp.Dataset:
    """24 batches of 64 and a rest."""
    shuffled = gp.Dataset.range(1550).shuffle(gp.ALL)
    return shuffled.map(drawn, rng=True).batch(batch).prefetch(2).with_options(gp.Options(seed=seed))


def write_images(folder: Path) -> None:
    """Four files of images, one more than 12 batches of 8 have."""
    for i in range(4):
        numbers = range(i, 8 * IMAGE_BATCHES + 1, 4)
        damage.write(folder / f"{i}.tfrecord", [damage.example(n, damage.jpeg(n)) for n in numbers])


def crop(record: Any) -> Any:
    encoded, label = parse(record)
    image = ops.random_resized_crop(ops.decode_jpeg(encoded, channels=3), (12, 12))
    return ops.random_brightness(ops.random_flip_left_right(image), 0.2), ops.cast(label, "int32")


def images(folder: str | Path) -> gp.Dataset:
    """12 batches of all ranks together, and a rest that is left out."""
    names = gp.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=False)
    records = names.interleave(gp.TFRecordDataset, cycle_length=2).shuffle(gp.ALL, seed=3)
    options = gp.Options(seed=5, device="cpu", backend="numpy")
    return records.map(crop).batch(8, drop_remainder=True).prefetch(2).with_options(options)


def digests(batch: Any, gather: Callable[[Any], list[Any]] = lambda leaf: [leaf]) -> list[str]:
    """The digests of the leaves of a batch, by their bytes: row r of each round of rows is that of rank r."""
    leaves = [gather(np.ascontiguousarray(leaf)) for leaf in (batch if isinstance(batch, tuple) else (batch,))]
    return [hashlib.blake2b(np.stack(parts, axis=1).tobytes(), digest_size=8).hexdigest() for parts in leaves]


def launched(*ranks: tuple[Sequence[str], dict[str, str]]) -> list[str]:
    """What ranks print, by the command and the variables of each. One that waits for another gives up."""
    root, pipe, started = Path(__file__).resolve().parents[2], subprocess.PIPE, list[subprocess.Popen[str]]()
    usual = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    for command, variables in ranks:
        env = {**os.environ, **usual, **variables}
        started.append(subprocess.Popen(command, env=env, cwd=root, stdout=pipe, stderr=pipe, text=True))
    try:
        ended = [process.communicate(timeout=200) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in started), [errors[-2000:] for _, errors in ended]
    return [out for out, _ in ended]


def torch_ranks(url: str) -> Ranks:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=url, timeout=datetime.timedelta(seconds=60))

    def gather(own: Any) -> list[Any]:
        every = [torch.zeros(own.shape, dtype=torch.from_numpy(own).dtype) for _ in range(dist.get_world_size())]
        dist.all_gather(every, torch.from_numpy(own))
        return [part.numpy() for part in every]

    def end() -> None:
        dist.barrier()
        dist.destroy_process_group()

    return dist.get_rank(), dist.get_world_size(), gather, end


def jax_ranks(rank: int, address: str) -> Ranks:
    import jax
    from jax.experimental import multihost_utils

    jax.distributed.initialize(address, 2, rank, coordinator_bind_address=address, initialization_timeout=60)
    return rank, 2, lambda own: list(np.asarray(multihost_utils.process_allgather(own))), jax.distributed.shutdown


def loop(items: Any, steps: int, gather: Callable[[Any], list[Any]]) -> list[list[str]]:
    """The digests of so many whole batches, or of all that are left."""
    said: list[list[str]] = []
    while len(said) != steps and (batch := next(items, None)) is not None:
        said.append(digests(batch, gather))
    return said


def resumed(steps: int, state: Path, gather: Callable[[Any], list[Any]]) -> dict[str, Any]:
    """Batches from a state on, where there is one, and the state behind them."""
    items = iter(chain().by_rank())
    if state.exists():
        items.load_state_dict(json.loads(state.read_text()))
    return {"batches": loop(items, steps, gather), "state": items.state_dict()}


def peeked(steps: int, rank: int, gather: Callable[[Any], list[Any]]) -> list[list[str]]:
    """Batches where rank 1 looked at one of its own before."""
    own = chain().by_rank()
    if rank == 1:
        next(iter(own))
    return loop(iter(own), steps, gather)


def even(how: Any, size: int, ranks: Ranks) -> list[int]:
    """Steps and rows of all ranks over 255 records, shared out in full batches; each step waits for the others."""
    rank, world, gather, _ = ranks
    records = gp.Dataset.range(255).shuffle(64, seed=1).shard(world, rank, even=how)
    steps = [np.sum(gather(np.array([len(batch)]))) for batch in records.batch(size, drop_remainder=True)]
    return [len(steps), int(sum(steps))]


def differing(what: str, rank: int) -> str:
    """The error where rank 1 has another seed, epoch or batch than the others."""
    wrong = what if rank == 1 else None
    own = chain(128 if wrong == "batch" else 64, 9 if wrong == "seed" else 1).by_rank()
    try:
        next(own.iterator(epoch=3 if wrong == "epoch" else 0))
    except gp.RanksDisagreeError as error:
        return str(error)
    return "none"


def main() -> None:
    engine, meeting, *tasks = sys.argv[1:]
    said: dict[str, Any] = {}
    for number, task in enumerate(tasks):  # each in a group of its own: ranks that differed cannot go on in theirs
        if engine == "torch":
            ranks = torch_ranks(meeting.replace("?", f"-{number}?"))
        else:
            ranks = jax_ranks(int(meeting[0]), meeting[2:])
        rank, _, gather, end = ranks
        match task.split(","):
            case ["resume", steps, state]:
                found: Any = resumed(int(steps), Path(state), gather)
            case ["peek", steps]:
                found = peeked(int(steps), rank, gather)
            case [("drop" | "wrap") as how, size]:
                found = even(how, int(size), ranks)
            case ["images", folder, epoch]:
                found = loop(images(folder).by_rank().iterator(epoch=int(epoch)), -1, gather)
            case _:
                found = differing(task, rank)
        said[task.partition(",")[0]] = found
        end()
    print(json.dumps(said) + "\n", end="", flush=True)  # in one write: other ranks may print to the same pipe


if __name__ == "__main__":
    main()
