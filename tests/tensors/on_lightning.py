"""Three epochs under Lightning; and the same, stopped in the middle of the second and resumed from the checkpoint."""

import sys
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.tensors.programs import chain, tell


class Model(lightning.LightningModule):
    """Notes the batches that it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.seen: list[Any] = []

    def training_step(self, batch: Any, index: int) -> Any:
        """One step."""
        self.seen.append(batch[1].tolist())
        return self.layer(batch[0]).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        """Nothing."""

    def configure_optimizers(self) -> Any:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(folder: str, resume: str | None = None, **limits: Any) -> list[Any]:
    """The batches of a training."""
    model = Model()
    save = ModelCheckpoint(folder, "step", every_n_train_steps=14)
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, max_epochs=3,
        default_root_dir=folder, callbacks=[save], **limits,
    )  # fmt: skip
    trainer.fit(model, chain().as_torch(), chain().as_torch(), ckpt_path=resume)
    return model.seen


folder = sys.argv[1]
before = train(folder, max_steps=14)
after = train(folder, f"{folder}/step.ckpt")
tell(0, whole=train(folder + "/whole"), before=before, after=after)
