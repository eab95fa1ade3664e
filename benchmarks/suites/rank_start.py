"""rank_start: one of several ranks that starts an epoch; prints what it took to its first batch, or to its error.

`ranks` runs it for each rank, with the variables that torchrun sets: torch.distributed takes rank and store from them.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

BATCH = 16
"""Images of all ranks together."""

WRONG = 1
"""The rank that differs."""

FOLDERS = {"files": "fewer", "file size": "longer"}
"""Where the files of a rank are that has others; all others have "same"."""

IMAGE = "image/encoded"


def chain(folder: Path, kind: str) -> Any:
    """Random crops in a random order; `kind` says in what it differs from that of other ranks, "" in nothing."""
    import gpupipe as gp

    least = 0.1 if kind == "function" else 0.08

    def crop(record: Any) -> Any:
        encoded = gp.io.parse_single_example(record, {IMAGE: gp.io.FixedLenFeature((), bytes)})[IMAGE]
        image = gp.ops.decode_jpeg(encoded, channels=3)
        return gp.ops.random_resized_crop(image, (224, 224), scale=(least, 1.0))

    files = gp.Dataset.list_files(str(folder / FOLDERS.get(kind, "same") / "*"), shuffle=False)
    records = files.interleave(gp.TFRecordDataset, cycle_length=8).shuffle(gp.ALL)
    batches = records.map(crop).batch(BATCH * (1 + (kind == "batch"))).prefetch(1)
    return batches.with_options(gp.Options(seed=2 if kind == "seed" else 1, device="cpu", backend="numpy"))


def main(folder: Path, kind: str, warm: bool, listener: int) -> None:
    """Start an epoch once all ranks are there."""
    import torch.distributed as dist

    import gpupipe as gp

    rank, world, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    wait = datetime.timedelta(seconds=60)
    store = None if rank else _store(dist, port, world, listener)
    dist.init_process_group("gloo", timeout=wait)
    mine = kind if rank == WRONG else ""
    if warm:  # imports what the chain needs, and compares nothing with other ranks
        with closing(chain(folder, "").by_rank(check=False).iterator(epoch=0)) as first:
            next(first)
    own = chain(folder, mine).by_rank()
    dist.barrier()
    started, cpu, error = perf_counter(), process_time(), ""
    items = own.iterator(epoch=3) if mine == "epoch" else iter(own)
    try:
        next(items)
    except gp.RanksDisagreeError as found:
        error = str(found)
    took = {"seconds": perf_counter() - started, "cpu_s": process_time() - cpu}
    dist.barrier()  # the first rank has the store
    items.close()
    print(json.dumps({"rank": rank, **took, "error": error}), flush=True)
    dist.destroy_process_group()
    del store


def _store(dist: Any, port: int, world: int, listener: int) -> Any:
    """A store as that of torchrun's agent, but bound to 127.0.0.1: torch's own listens on all interfaces."""
    return dist.TCPStore("127.0.0.1", port, world, is_master=True, wait_for_workers=False, master_listen_fd=listener)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "warm", int(sys.argv[4]))
