"""A Keras model on PyTorch under DistributedDataParallel, and the epoch again from its third step."""

from typing import Any

import keras
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.tensors.programs import chain, converted, tell

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def trained(state: Any = None) -> tuple[list[Any], list[Any], Any, bool]:
    """The batches, the weights after them, the state after two, and whether each batch is the chain's own array."""
    keras.utils.set_random_seed(0)
    loader = chain().shard(ranks, rank, even="drop").as_keras()
    arrays = converted(loader)
    if state is not None:
        loader.load_state_dict(state["loader"])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    if state is not None:
        model.set_weights(state["weights"])
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    seen, saved, own = [], None, True
    for step, (inputs, numbers) in enumerate(loader):
        own &= inputs.data_ptr() == arrays[-2].ctypes.data
        seen.append(numbers.tolist())
        optimizer.zero_grad()
        parallel(inputs).square().mean().backward()
        optimizer.step()
        if step == 1:
            saved = {"loader": loader.state_dict(), "weights": model.get_weights()}
    return seen, [array.tolist() for array in model.get_weights()], saved, own


batches, weights, state, own = trained()
rest, resumed, _, _ = trained(state)
tell(rank, batches=batches, weights=weights, rest=rest, resumed=resumed, own=bool(own))
dist.destroy_process_group()
