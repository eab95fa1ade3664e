"""Two epochs under Lightning on one CPU: the batches that a training step gets, and where they are in memory."""

from typing import Any

import lightning
import torch

from tests.tensors.programs import chain, tell


class Noting(lightning.LightningModule):
    """Notes its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.batches: list[list[int]] = []
        self.places: list[int] = []

    def training_step(self, batch: Any, index: int) -> Any:
        inputs, numbers = batch
        self.batches.append(numbers.tolist())
        self.places += [inputs.data_ptr(), numbers.data_ptr()]
        return self.layer(inputs).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


arrays: list[Any] = []  # kept, so that no place is used twice
loader = chain().as_torch()
convert = loader._convert
loader._convert = lambda leaf: arrays.append(leaf) or convert(leaf)  # type: ignore[func-returns-value]
model = Noting()
off: Any = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, **off).fit(model, loader)
tell(0, batches=model.batches, places=model.places, own=[array.ctypes.data for array in arrays])
