"""One rank of torch.distributed that loops over `by_rank`: it says a digest of each whole batch, and its state."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import time
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


def main() -> None:
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser()
    parser.add_argument("meeting")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--wrong", choices=["seed", "epoch", "batch", "peek"])
    args = parser.parse_args()
    dist.init_process_group("gloo", init_method=args.meeting, timeout=datetime.timedelta(seconds=60))
    wrong = args.wrong if dist.get_rank() == 1 else None
    own = chain(128 if wrong == "batch" else 64, 9 if wrong == "seed" else 1).by_rank()
    if wrong == "peek":
        next(iter(own))
    items = own.iterator(epoch=3) if wrong == "epoch" else iter(own)
    if args.state is not None and args.state.exists():
        items.load_state_dict(json.loads(args.state.read_text()))
    said: list[str] = []
    start = time.monotonic()
    try:
        while args.steps < 0 or len(said) < args.steps:
            batch = next(items, None)
            if batch is None:
                break
            every = [torch.zeros(batch.shape, dtype=torch.float64) for _ in range(dist.get_world_size())]
            dist.all_gather(every, torch.from_numpy(batch))
            said.append(digest(np.stack([part.numpy() for part in every], axis=1)))
    except gp.RanksDisagreeError as error:
        print(json.dumps({"error": str(error), "seconds": time.monotonic() - start}), flush=True)
        return
    print(json.dumps({"batches": said, "state": items.state_dict()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
