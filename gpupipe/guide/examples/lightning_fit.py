"""Train with Lightning, on one device or several.

    python lightning_fit.py 'train-*.tfrecord' --val 'val-*.tfrecord' --epochs 2
    torchrun --nproc-per-node=8 lightning_fit.py 'train-*.tfrecord' --devices 8

The same command again continues a run that was stopped: Lightning's checkpoint holds the place in the epoch, too.
"""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import gpupipe as gp
from gpupipe import ops


class Classifier(lightning.LightningModule):
    """A small network of 1000 classes, and its data: batches of float32[N,3,S,S] and int64[N]."""

    def __init__(self, args):
        super().__init__()
        self.args = args
        body = [nn.Conv2d(3, 32, 5, stride=4), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.network = nn.Sequential(*body, nn.Linear(32, 1000))

    def loader(self, records, training):
        """The part of this rank, as the DataLoader that Lightning takes."""
        size, batch = self.args.size, self.args.batch

        def example(record):
            features = {"image/encoded": gp.io.FixedLenFeature((), bytes)}
            features["image/class/label"] = gp.io.FixedLenFeature((), "int64")
            x = gp.io.parse_single_example(record, features)
            image = ops.decode_jpeg(x["image/encoded"], channels=3)
            if training:
                image = ops.random_flip_left_right(ops.random_resized_crop(image, (size, size)))
            else:
                image = ops.center_crop(ops.resize_shorter(image, size * 8 // 7), (size, size))
            image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
            return ops.transpose(image), x["image/class/label"]

        own = records.shard(self.trainer.world_size, self.trainer.global_rank, even="drop")
        return own.map(example).batch(batch, drop_remainder=training).prefetch(gp.AUTOTUNE).as_torch()

    def train_dataloader(self):
        """Shuffled and augmented."""
        files = gp.Dataset.list_files(self.args.train, seed=1)
        return self.loader(files.interleave(gp.TFRecordDataset, cycle_length=8).shuffle(10_000, seed=1), True)

    def val_dataloader(self):
        """In order; Lightning skips validation where there are no files for it."""
        val = gp.Dataset.list_files(self.args.val, shuffle=False) if self.args.val else None
        return self.loader(val.flat_map(gp.TFRecordDataset), False) if val else []

    def training_step(self, batch, index):
        """The loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        """The share of right answers."""
        images, labels = batch
        self.log("accuracy", (self.network(images).argmax(1) == labels).float().mean(), prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        """Descent with momentum."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="pattern of TFRecord files with image/encoded and image/class/label")
    parser.add_argument("--val", help="pattern of files to validate on")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="images of a rank")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--folder", default="run", help="of checkpoints")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--steps", type=int, default=-1, help="stop after so many, as a machine may that is taken away")
    args = parser.parse_args()
    lightning.seed_everything(0)
    save = ModelCheckpoint(args.folder, save_last=True, every_n_train_steps=args.save_every)
    limits = {"max_epochs": args.epochs, "max_steps": args.steps, "devices": args.devices}
    lightning.Trainer(**limits, callbacks=[save], logger=False).fit(Classifier(args), ckpt_path="last")
