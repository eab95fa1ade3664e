"""transformers' Trainer: resumes at each place of a run, with the callback of the guide; and evaluation on ranks."""

import logging
import os
import sys
import tempfile
from typing import Any

import numpy as np
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, YolosConfig, YolosForObjectDetection

import gpupipe as gp
from tests.docs.recipes import BLOCK
from tests.docs.test_pages import GUIDE
from tests.tensors.programs import drawing, tell

logging.getLogger("gpupipe").setLevel(logging.ERROR)


class Model(torch.nn.Module):
    """Notes the batches that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[Any] = []

    def forward(self, x: Any = None, labels: Any = None) -> Any:
        self.seen.append(x.tolist())
        return {"loss": self.weight * x.mean(), "logits": x[:, :1]}


class OwnLoaders(Trainer):
    """With loaders of gpupipe."""

    def get_train_dataloader(self) -> Any:
        return drawing().map(lambda x: {"x": x, "labels": x[:, 0]}).as_torch()

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        return self.get_eval_dataloader()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        rows = gp.Dataset.range(50).map(
            lambda i: {"x": np.array([int(i), 0], np.float32), "labels": np.int64(i)}, traced=False
        )
        return self.accelerator.prepare(rows.batch(8).as_torch())


def arguments(folder: str, **given: Any) -> TrainingArguments:
    return TrainingArguments(folder, report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no", **given)


def trained(folder: str, checkpoint: str | None = None, callbacks: Any = None) -> list[Any]:
    model = Model()
    given = arguments(folder, num_train_epochs=3, save_strategy="steps", save_steps=1)
    OwnLoaders(model, given, callbacks=callbacks).train(resume_from_checkpoint=checkpoint)
    return model.seen


def counted(found: Any) -> dict[str, Any]:
    labels = np.asarray(found.label_ids).tolist()
    return {"rows": len(labels), "each": sorted(labels) == list(range(50))}


def detected() -> float:
    """The loss of a detector on a batch with two boxes, and one without."""

    def example(number: Any) -> Any:
        boxes = np.tile(np.array([0.5, 0.5, 0.2, 0.2], np.float32), (number, 1))
        pixels = np.full((3, 16, 16), 0.5, np.float32)
        return {"pixel_values": pixels, "labels": {"boxes": boxes, "class_labels": np.zeros(number, np.int64)}}

    targets = {"boxes": gp.TensorSpec((None, 4), "float32"), "class_labels": gp.TensorSpec((None,), "int64")}
    spec = {"pixel_values": gp.TensorSpec((3, 16, 16), "float32"), "labels": targets}
    ds = gp.Dataset.from_list([2, 0]).map(example, traced=False, spec=spec).ragged_batch(2)
    (batch,) = ds.as_torch(lists=True)
    tiny = dict.fromkeys(("hidden_size", "intermediate_size", "patch_size"), 8)
    tiny |= dict.fromkeys(("num_hidden_layers", "num_attention_heads"), 1)
    config: Any = YolosConfig
    model: Any = YolosForObjectDetection(config(**tiny, image_size=[16, 16], num_detection_tokens=5, num_labels=1))
    return float(model(**batch).loss)


with tempfile.TemporaryDirectory() as folder:
    if sys.argv[1] == "evaluate":
        result = OwnLoaders(Model(), arguments(folder), compute_metrics=counted).evaluate()
        trainer: Any = OwnLoaders(Model(), arguments(folder))
        predicted = trainer.predict(None)
        tell(
            int(os.environ.get("RANK", 0)),
            rows=result["eval_rows"],
            each=result["eval_each"],
            predicted=[sorted(predicted.predictions[:, 0].tolist()), list(range(50))],
        )
        sys.exit()
    names: dict[str, Any] = {"TrainerCallback": TrainerCallback}
    (code,) = [one for one in BLOCK.findall((GUIDE / "trainers.md").read_text()) if "TrainerCallback" in one]
    exec(code, names)
    whole = trained(folder)
    resumed: dict[int, bool] = {}
    refused: dict[int, Any] = {}
    for step in (4, 6, 9, 12, 14):
        checkpoint = f"{folder}/checkpoint-{step}"
        with tempfile.TemporaryDirectory() as other:
            resumed[step] = whole[:step] + trained(other, checkpoint, [names["Epoch"]()]) == whole
            try:
                refused[step] = whole[:step] + trained(other, checkpoint) == whole
            except gp.PlanError as error:
                refused[step] = str(error)
    batches = [[batch.tolist() for batch in drawing().iterator(epoch=epoch)] for epoch in range(3)]
    tell(
        0,
        epochs=[whole, [batch for epoch in batches for batch in epoch]],
        resumed=resumed,
        plain=refused,
        detected=detected(),
    )
