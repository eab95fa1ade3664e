"""PyTorch's loop, and two processes that it spawns: DistributedDataParallel, torch.distributed.checkpoint, torchtitan.

Its argument is a folder. A cell of the table of trainers is what was seen, and what is right.
"""

import logging
import sys
from abc import ABC, abstractmethod
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch.distributed.checkpoint.stateful import Stateful
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import gpupipe as gp
from tests.docs.recipes import BLOCK
from tests.docs.test_pages import GUIDE
from tests.tensors.programs import drawing, epochs, rows, tell

dcp: Any = torch.distributed.checkpoint

RANKS, INSIDE, END = 2, 2, 6
"""Processes; batches before a resume inside an epoch, and at its end."""


def lists(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


def flat(found: list[Any]) -> list[Any]:
    return [one for part in found for one in part]


def everywhere(own: Any) -> list[Any]:
    """What all ranks have, by rank."""
    found: list[Any] = [None] * RANKS
    dist.all_gather_object(found, own)
    return found


def together(own: list[Any]) -> list[Any]:
    """The batches of all ranks, of the rows that each has of them."""
    return [[row for step in zip(*parts, strict=True) for row in step] for parts in zip(*everywhere(own), strict=True)]


def in_a_loop() -> dict[str, Any]:
    """PyTorch's loop in one process."""
    loader = drawing().as_torch()
    cells = {"epochs": (lists(loader) + lists(loader) + lists(loader), flat(epochs(0, 1, 2)))}
    for name, steps in (("inside", INSIDE), ("end", END)):
        loader, again = drawing().as_torch(), drawing().as_torch()
        loader.set_epoch(1)
        given = lists(islice(loader, steps))
        again.load_state_dict(loader.state_dict())
        cells[name] = (given + lists(again) + lists(again), flat(epochs(1, 2)))
    return cells


def in_parallel() -> dict[str, Any]:
    """DistributedDataParallel over the rows of each rank."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def trained(loader: Any, steps: int | None = None) -> list[Any]:
        seen = []
        for batch in islice(loader, steps):
            optimizer.zero_grad()
            model(batch / 12).square().mean().backward()
            optimizer.step()
            seen.append(batch.tolist())
        return together(seen)

    loader = drawing().by_rank().as_torch()
    cells = {"epochs": (trained(loader) + trained(loader) + trained(loader), flat(epochs(0, 1, 2)))}
    for name, steps in (("inside", INSIDE), ("end", END)):
        loader, again = drawing().by_rank().as_torch(), drawing().by_rank().as_torch()
        loader.set_epoch(1)
        given = trained(loader, steps)
        again.load_state_dict(loader.state_dict())
        cells[name] = (given + trained(again) + trained(again), flat(epochs(1, 2)))
    items = iter(rows(11).batch(4).by_rank(remainder="pad").as_torch())
    evaluated = [row for batch in items for row in batch[torch.from_numpy(items.valid)].tolist()]
    cells["ranks"] = (sorted(flat(everywhere(evaluated))), sorted(lists(rows(11).iterator(epoch=0))))
    weights = [weight.tolist() for weight in model.parameters()]
    cells["spawn"] = (everywhere(weights), [weights] * RANKS)
    return cells


def saved(loader: Any, steps: int, name: str) -> list[Any]:
    given = lists(islice(loader, steps))
    dcp.save({"loader": loader}, checkpoint_id=name)
    return given


def loaded(loader: Any, name: str, alone: bool = False) -> list[Any]:
    """The rest of the epoch, and the next one; or the error that the state is refused with."""
    try:
        dcp.load({"loader": loader}, checkpoint_id=name, no_dist=alone)
    except Exception as error:
        return [str(error)]
    return lists(loader) + lists(loader)


def in_checkpoints(folder: str, rank: int) -> dict[str, Any]:
    """torch.distributed.checkpoint: as many ranks, one, ranks that have shards, and ranks that hold elements."""
    cells = {}
    for name, steps in (("inside", INSIDE), ("end", END)):
        given = together(saved(drawing().by_rank().as_torch(), steps, f"{folder}/{name}"))
        again = together(loaded(drawing().by_rank().as_torch(), f"{folder}/{name}"))
        cells[name] = (given + again, flat(epochs(0, 1)))
        one = loaded(drawing().by_rank(0, 1, check=False).as_torch(), f"{folder}/{name}", alone=True)
        cells[f"{name}, one rank"] = (given + one, flat(epochs(0, 1)))

    def shard(ranks: int, rank: int) -> Any:
        return drawing().shard(ranks, rank, even="drop").as_torch()

    def held(ranks: int, rank: int) -> Any:
        return rows().shard(ranks, rank, even="drop").shuffle(3, seed=2).batch(1).as_torch()

    given = saved(shard(RANKS, rank), 1, f"{folder}/shard") + loaded(shard(RANKS, rank), f"{folder}/shard")
    cells["shard"] = (given, [batch for epoch in epochs(0, 1) for batch in epoch[rank::RANKS]])
    saved(held(RANKS, rank), 2, f"{folder}/held")
    cells["held"] = (loaded(held(RANKS, rank), f"{folder}/held"), lists(held(RANKS, rank))[2:])
    cells["held, one rank"] = (loaded(held(1, 0), f"{folder}/held", alone=True), [])
    return cells


class BaseDataLoader(Stateful, ABC):
    """What torchtitan 0.3 asks of a loader (torchtitan/components/dataloader.py)."""

    @abstractmethod
    def __iter__(self) -> Any: ...


def in_torchtitan(folder: str, rank: int) -> dict[str, Any]:
    """The loader of the guide as torchtitan's Trainer and Validator use theirs: one `iter`, and states by DCP."""
    names: dict[str, Any] = {"BaseDataLoader": BaseDataLoader}
    (code,) = [one for one in BLOCK.findall((GUIDE / "trainers.md").read_text()) if "BaseDataLoader" in one]
    exec(code.replace("batch(64)", "batch(4)"), names)

    def made() -> Any:
        names["ds"] = rows().map(_inputs)
        return names["Images"](None, dp_world_size=RANKS, dp_rank=rank, tokenizer=None)

    def seen(batches: Any, steps: int | None = None) -> list[Any]:
        return together([labels.tolist() for _, labels in islice(batches, steps)])

    def wanted(steps: int) -> list[Any]:
        return [labels.tolist() for _, labels in islice(rows().map(_inputs).repeat().batch(4), steps)]

    cells = {"epochs": (seen(iter(made()), 7), wanted(7))}
    group = dist.new_group(backend="gloo")  # torchtitan's, for saving beside training
    for name, steps in (("inside", 4), ("end", 3)):  # an epoch is 3 steps
        loader, again = made(), made()
        given = seen(iter(loader), steps)
        state = {"dataloader": loader}
        if name == "inside":
            dcp.async_save(state, checkpoint_id=f"{folder}/titan {name}", process_group=group).result()
        else:
            dcp.save(state, checkpoint_id=f"{folder}/titan {name}")
        dcp.load({"dataloader": again}, checkpoint_id=f"{folder}/titan {name}")
        cells[name] = (given + seen(iter(again), 7 - steps), wanted(7))
    items = iter(rows(11).map(_inputs).batch(4).by_rank(remainder="pad").as_torch())
    left = [labels[torch.from_numpy(items.valid)].tolist() for _, labels in items]
    cells["ranks"] = (sorted(flat(flat(everywhere(left)))), list(range(11)))
    return cells


def _inputs(row: Any) -> Any:
    return {"input": row}, gp.ops.cast(row[0], "int64")


def work(rank: int, loader: Any, folder: str) -> None:
    """One rank."""
    logging.getLogger("gpupipe").setLevel(logging.ERROR)
    dist.init_process_group("gloo", f"file://{folder}/ranks", rank=rank, world_size=RANKS)
    cells = {"pytorch": {"spawn": (everywhere(lists(loader)), epochs(1, 1))}, "ddp": in_parallel()}
    cells |= {"dcp": in_checkpoints(folder, rank), "torchtitan": in_torchtitan(folder, rank)}
    tell(rank, cells=cells)
    dist.destroy_process_group()


if __name__ == "__main__":
    given = drawing().as_torch()
    lists(given)
    found = {"pytorch": in_a_loop()}
    spawn(work, (given, sys.argv[1]), nprocs=RANKS)
    tell(RANKS, cells=found)
