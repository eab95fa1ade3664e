"""Lightning: epochs, resumes from checkpoints everywhere in an epoch, and loaders that it makes again."""

import json
import logging
import sys
import tempfile
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import gpupipe as gp
from tests.tensors.programs import drawing, epochs, rows, tell

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    """Notes the batches that it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[Any] = []
        self.validated: list[Any] = []

    def training_step(self, batch: Any, index: int) -> Any:
        self.seen.append((self.current_epoch, batch.tolist()))
        return self.weight * batch.mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.validated.append(batch.tolist())

    def predict_step(self, batch: Any, index: int) -> Any:
        return batch.tolist()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Hooks(Module):
    """Makes its chain anew whenever it is asked for a loader."""

    def train_dataloader(self) -> Any:
        return drawing().as_torch()

    def predict_dataloader(self) -> Any:
        return drawing().as_torch()


class Spawned(Module):
    """Is trained by two processes that Lightning spawns, on a loader that is given to them, and evaluates by rank."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def val_dataloader(self) -> Any:
        return rows().batch(4).by_rank().as_torch()

    def on_fit_end(self) -> None:
        found: list[Any] = [None] * 2
        torch.distributed.all_gather_object(found, (self.seen, self.validated))
        self.file.write_text(json.dumps(found))


def trainer(**given: Any) -> lightning.Trainer:
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    return lightning.Trainer(accelerator="cpu", **{**quiet, **given})


def trained(epochs: int, checkpoint: Any = None, **given: Any) -> Module:
    module = Module()
    trainer(max_epochs=epochs, **given).fit(module, drawing().as_torch(), ckpt_path=checkpoint, weights_only=False)
    return module


def saving(folder: str, **given: Any) -> dict[str, Any]:
    return {"enable_checkpointing": True, "callbacks": [ModelCheckpoint(folder, save_top_k=-1, **given)]}


def main() -> None:
    """What is told: mostly whether batches are those of a run that is not interrupted."""
    whole = trained(3).seen
    resumed: dict[str, bool] = {}
    for every in (None, 2, 3, 6):
        with tempfile.TemporaryDirectory() as folder:
            before = trained(2, **saving(folder, **({} if every is None else {"every_n_train_steps": every}))).seen
            for path in sorted(Path(folder).iterdir()):
                step = int(path.stem.partition("step=")[2])
                resumed[f"{every} {step}"] = before[:step] + trained(3, path).seen == whole
    with tempfile.TemporaryDirectory() as folder:
        first = Module()
        fit = trainer(max_epochs=1)
        fit.fit(first, drawing().as_torch())
        fit.save_checkpoint(f"{folder}/end.ckpt")
        resumed["after fit"] = first.seen + trained(3, f"{folder}/end.ckpt").seen == whole
        half = trained(2, limit_train_batches=3, **saving(folder)).seen
        path = next(Path(folder).glob("epoch=0*"))
        resumed["half epochs"] = half == half[:3] + trained(2, path, limit_train_batches=3).seen

    with tempfile.TemporaryDirectory() as folder:
        trained(1, **saving(folder, every_n_train_steps=2))
        path = next(Path(folder).glob("*step=2*"))
        other = drawing().prefetch(1)  # a chain of one step more
        refused = ""
        try:
            trainer(max_epochs=1).fit(Module(), other.as_torch(), ckpt_path=path, weights_only=False)
        except gp.StateError as error:
            refused = str(error)
        ignored = Module()
        loose = other.with_options(gp.Options(strict_states=False)).as_torch()
        trainer(max_epochs=2).fit(ignored, loose, ckpt_path=path, weights_only=False)

    reloaded = Hooks()
    trainer(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(reloaded)
    overfit = [Module(), Hooks()]
    trainer(max_epochs=2, overfit_batches=2).fit(overfit[0], drawing().as_torch())
    trainer(max_epochs=2, overfit_batches=2).fit(overfit[1])
    wanted = [batch.tolist() for batch in drawing().iterator(epoch=0)]
    predicted = [trainer().predict(Module(), drawing().as_torch()), trainer().predict(Hooks())]

    skipped = Module()
    bad = gp.Dataset.range(10).map(lambda x: 1 / (int(x) % 4), traced=False, spec=gp.TensorSpec((), "float64"))
    held_out = bad.batch(2).with_options(gp.Options(on_error="skip")).as_torch()
    trainer(max_epochs=2, num_sanity_val_steps=0).fit(skipped, drawing().as_torch(), held_out)

    fabric = lightning.Fabric(accelerator="cpu")
    loader = drawing().as_torch()
    wrapped: Any = fabric.setup_dataloaders(loader)
    in_fabric = [[batch.tolist() for batch in wrapped] for _ in range(3)]
    in_fabric_from = {}
    for steps in (2, 6):
        loader, again = drawing().as_torch(), drawing().as_torch()
        loader.set_epoch(1)
        wrapped = fabric.setup_dataloaders(loader)
        seen = [batch.tolist() for batch in islice(wrapped, steps)]
        again.load_state_dict(loader.state_dict())
        wrapped = fabric.setup_dataloaders(again)
        seen += [batch.tolist() for _ in range(2) for batch in wrapped]
        in_fabric_from[steps] = [seen, [batch for epoch in epochs(1, 2) for batch in epoch]]

    file = Path(sys.argv[1]) / "spawned.json"
    spawning = trainer(max_epochs=1, strategy="ddp_spawn", devices=2, num_sanity_val_steps=0)
    spawning.fit(Spawned(file), drawing().as_torch())
    told = json.loads(file.read_text())

    tell(
        0,
        resumed=resumed,
        refused=refused,
        ignored=ignored.seen == whole[2:12],
        epochs=[[batch for _, batch in whole], [batch for epoch in epochs(0, 1, 2) for batch in epoch]],
        reloaded=reloaded.seen == whole,
        overfit=[[batch for _, batch in one.seen] == wanted[:2] * 2 for one in overfit],
        predicted=[one == wanted for one in predicted],
        validated=len(skipped.validated),
        spawned=[[[batch for _, batch in seen] for seen, _ in told], [epochs(0)[0]] * 2],
        ranks=[
            sorted(row for _, found in told for batch in found for row in batch),
            sorted(row for batch in epochs(0)[0] for row in batch),
        ],
        fabric=[in_fabric, epochs(0, 1, 2)],
        fabric_from=in_fabric_from,
    )


if __name__ == "__main__":
    main()
