"""A loop under Accelerate, on one rank or several, with a resume in the middle of the epoch."""

import logging
import sys
from logging.handlers import BufferingHandler

import torch
from accelerate import Accelerator

from tests.tensors.programs import chain, converted, tell

said = BufferingHandler(100)
logging.getLogger("gpupipe").addHandler(said)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, chain().as_torch())
batches, ends, steps, state = [], [], 0, {}
arrays = converted(loader)
own = True  # whether each batch is one of gpupipe's
for step, (inputs, numbers) in enumerate(loader):
    pair = arrays[2 * step : 2 * step + 2]
    own &= [inputs.data_ptr(), numbers.data_ptr()] == [array.ctypes.data for array in pair]
    batches.append(numbers.tolist())
    with accelerator.accumulate(model):
        accelerator.backward(model(inputs).mean())
        optimizer.step()
        optimizer.zero_grad()
    steps += accelerator.sync_gradients
    ends.append(accelerator.gradient_state.end_of_dataloader)
    if step == 2:
        accelerator.save_state(sys.argv[1])
        state = loader.state_dict()
accelerator.load_state(sys.argv[1])
if accelerator.num_processes > 1:  # each rank has a position of its own
    loader.load_state_dict(state)
rest, following = ([numbers.tolist() for _, numbers in loader] for _ in range(2))
again = accelerator.prepare(chain().as_torch())
again.load_state_dict(loader.state_dict())
tell(
    accelerator.process_index,
    batches=batches,
    ends=ends,
    steps=steps,
    warnings=[record.getMessage() for record in said.buffer],
    length=len(loader),
    device=inputs.device.type,
    own=own,
    rest=rest,
    next=following,
    end=[numbers.tolist() for _, numbers in again],
)
accelerator.end_training()
