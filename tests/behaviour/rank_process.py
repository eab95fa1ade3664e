"""One rank of torch.distributed: it does tasks in turn over `by_rank` or `shard`, and prints what each gave."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp


def drawn(x: Any, rng: np.random.Generator) -> Any:
    """An element with random numbers of its own, like a random crop."""
    return np.array([float(int(x)), rng.random()])


def chain(batch: int = 64, seed: int = 1) -> gp.Dataset:
    """24 batches of 64 and a rest."""
    shuffled = gp.Dataset.range(1550).shuffle(gp.ALL)
    return shuffled.map(drawn, rng=True).batch(batch).prefetch(2).with_options(gp.Options(seed=seed))


def digest(batch: Any) -> str:
    """The digest of a batch, by its bytes."""
    return hashlib.blake2b(np.ascontiguousarray(batch).tobytes(), digest_size=8).hexdigest()


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


def loop(items: Any, steps: int) -> list[str]:
    """The digests of so many whole batches, or of all that are left."""
    import torch
    import torch.distributed as dist

    said: list[str] = []
    while len(said) != steps and (batch := next(items, None)) is not None:
        every = [torch.zeros(batch.shape, dtype=torch.float64) for _ in range(dist.get_world_size())]
        dist.all_gather(every, torch.from_numpy(batch))
        said.append(digest(np.stack([part.numpy() for part in every], axis=1)))
    return said


def differing(what: str) -> str:
    """The error where rank 1 has another seed, epoch or batch than the others."""
    import torch.distributed as dist

    wrong = what if dist.get_rank() == 1 else None
    own = chain(128 if wrong == "batch" else 64, 9 if wrong == "seed" else 1).by_rank()
    try:
        next(own.iterator(epoch=3 if wrong == "epoch" else 0))
    except gp.RanksDisagreeError as error:
        return str(error)
    return "none"


def peeked(steps: int) -> list[str]:
    """Batches where rank 1 looked at one of its own before."""
    import torch.distributed as dist

    own = chain().by_rank()
    if dist.get_rank() == 1:
        next(iter(own))
    return loop(iter(own), steps)


def even(how: Any, size: int) -> list[int]:
    """Steps and rows of all ranks over 255 records, shared out in full batches; each step waits for the others."""
    import torch
    import torch.distributed as dist

    steps, total = 0, torch.zeros((), dtype=torch.int64)
    records = gp.Dataset.range(255).shuffle(64, seed=1).shard(dist.get_world_size(), dist.get_rank(), even=how)
    for batch in records.batch(size, drop_remainder=True):
        part = torch.tensor(len(batch))
        dist.all_reduce(part)
        total += part
        steps += 1
    return [steps, int(total)]


def resumed(steps: int, state: Path) -> dict[str, Any]:
    """Batches from a state on, where there is one, and the state behind them."""
    items = iter(chain().by_rank())
    if state.exists():
        items.load_state_dict(json.loads(state.read_text()))
    return {"batches": loop(items, steps), "state": items.state_dict()}


def main() -> None:
    import torch.distributed as dist

    meeting, *tasks = sys.argv[1:]
    said: dict[str, Any] = {}
    for number, task in enumerate(tasks):  # each in a group of its own: ranks that differed cannot go on in theirs
        url = meeting.replace("?", f"-{number}?")
        dist.init_process_group("gloo", init_method=url, timeout=datetime.timedelta(seconds=60))
        name, *args = task.split(",")
        if name == "resume":
            said[name] = resumed(int(args[0]), Path(args[1]))
        elif name == "peek":
            said[name] = peeked(int(args[0]))
        elif name in ("drop", "wrap"):
            said[name] = even(name, int(args[0]))
        else:
            said[name] = differing(name)
        dist.barrier()
        dist.destroy_process_group()
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
