"""Two epochs under DistributedDataParallel; and the second one again from its third step."""

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.tensors.programs import chain, tell

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
path = f"{sys.argv[1]}/rank{rank}.pt"


def trained(state: Any = None) -> tuple[list[Any], list[Any]]:
    """The weights after the second epoch, and the batches of each."""
    torch.manual_seed(0)
    loader = chain().shard(ranks, rank, even="drop").as_torch()
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if state is not None:
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["loader"])
    seen: list[Any] = []
    for epoch in range(0 if state is None else 1, 2):
        loader.set_epoch(epoch)
        seen.append([])
        for step, (inputs, numbers) in enumerate(loader):
            seen[-1].append(numbers.tolist())
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            if state is None and (epoch, step) == (1, 1):
                torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, path)
    return model.module.weight.tolist(), seen


weights, batches = trained()
resumed, rest = trained(torch.load(path))
tell(rank, batches=batches, rest=rest[0], weights=weights, resumed=resumed)
dist.destroy_process_group()
