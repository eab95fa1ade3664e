"""Train on one device with PyTorch.

    python pytorch.py 'train-*.tfrecord' --epochs 2

The same command again continues a run that was stopped, from its last checkpoint, in the middle of an epoch.
"""

import argparse
import os

import torch
from torch import nn

import gpupipe as gp
from gpupipe import ops


def batches(args):
    """The batches: float32[N,3,S,S] and int64[N]."""
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


def network():
    """A small network: scores of 1000 classes."""
    body = [nn.Conv2d(3, 32, 7, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1000))


def main(args):
    """Train."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = batches(args).as_torch(device)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def save(epoch):
        """Write all that a run needs to continue; the loader knows its place in the epoch."""
        parts = {"model": model, "optimizer": optimizer, "loader": loader}
        state = {"epoch": epoch, **{name: part.state_dict() for name, part in parts.items()}}
        torch.save(state, f"{args.checkpoint}.new")
        os.replace(f"{args.checkpoint}.new", args.checkpoint)

    first = step = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first = saved["epoch"]
    for epoch in range(first, args.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.save_every == 0:
                save(epoch)
                print(f"epoch {epoch}, loss {loss.item():.6f}")
            if step == args.steps:
                return
        save(epoch + 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="pattern of TFRecord files with image/encoded and image/class/label")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--checkpoint", default="run.pt")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--steps", type=int, help="stop after so many, as a machine may that is taken away")
    main(parser.parse_args())
