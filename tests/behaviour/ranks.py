"""One rank of a training run: it sums a number per batch with the others, as DistributedDataParallel sums gradients."""

from __future__ import annotations

import datetime
import os
import sys
from typing import Any

import gpupipe as gp


def chain(rank: int, ranks: int, even: Any, size: int) -> gp.Dataset:
    """255 records, shared out among the ranks in full batches."""
    return gp.Dataset.range(255).shuffle(64, seed=1).shard(ranks, rank, even=even).batch(size, drop_remainder=True)


def main() -> None:
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting, even, size, patience = sys.argv[1:]
    wait = datetime.timedelta(seconds=int(patience))
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=wait)
    steps, total = 0, torch.zeros((), dtype=torch.int64)
    for batch in chain(rank, ranks, None if even == "uneven" else even, int(size)):
        part = torch.tensor(len(batch))
        dist.all_reduce(part)  # waits for the other ranks
        total += part
        steps += 1
    dist.barrier()
    dist.destroy_process_group()
    print(steps, int(total), flush=True)


if __name__ == "__main__":
    main()
