"""Train with Accelerate, on one device or several.

    accelerate launch accelerate_loop.py 'train-*.tfrecord' --epochs 2

The same command again continues a run that was stopped, from its last checkpoint, in the middle of an epoch.
"""

import argparse
import json
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

import gpupipe as gp
from gpupipe import ops


def batches(args):
    """The batches of all ranks: float32[N,3,S,S] and int64[N]."""
    encoded, label = gp.io.FixedLenFeature((), bytes), gp.io.FixedLenFeature((), "int64")

    def train_example(record):
        x = gp.io.parse_single_example(record, {"image/encoded": encoded, "image/class/label": label})
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        image = ops.random_flip_left_right(ops.random_resized_crop(image, (args.size, args.size)))
        image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
        return ops.transpose(image), x["image/class/label"]

    files = gp.Dataset.list_files(args.data, seed=1)
    records = files.interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=gp.AUTOTUNE)
    images = records.shuffle(10_000, seed=1).map(train_example)
    return images.batch(args.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)


def main(args):
    """Train."""
    set_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate)
    layers = nn.Conv2d(3, 64, 8, stride=8), nn.SiLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 1000)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, batches(args).as_torch())
    place = Path(args.folder, f"loader-{accelerator.process_index}.json")  # every rank has its own

    def save(epoch):
        """Accelerate writes weights and random states; each rank its place in the epoch."""
        accelerator.save_state(args.folder)
        place.write_text(json.dumps({"epoch": epoch, "loader": loader.state_dict()}))
        accelerator.wait_for_everyone()

    first = step = 0
    if place.exists():
        accelerator.load_state(args.folder)
        saved = json.loads(place.read_text())
        loader.load_state_dict(saved["loader"])
        first = saved["epoch"]
    for epoch in range(first, args.epochs):
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            if step % args.save_every == 0 and accelerator.sync_gradients:
                save(epoch)
                print(f"rank {accelerator.process_index}, epoch {epoch}, loss {loss.item():.6f}")
            if step == args.steps:
                return accelerator.end_training()
        save(epoch + 1)
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="pattern of TFRecord files with image/encoded and image/class/label")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="images of a rank")
    parser.add_argument("--accumulate", type=int, default=1, help="batches of an update")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--folder", default="run", help="of the checkpoint")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--steps", type=int, help="stop after so many, as a machine may that is taken away")
    main(parser.parse_args())
