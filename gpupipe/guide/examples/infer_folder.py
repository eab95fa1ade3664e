"""Write the class of each image below a folder to a CSV file, with the network that pytorch.py trained.

    python infer_folder.py photos --checkpoint run.pt --out classes.csv

The same command again continues a run that was stopped. Files that are no images are listed in classes.csv.bad.jsonl.
"""

import argparse
import csv
import json
import os

import torch
from pytorch import network

import gpupipe as gp
from gpupipe import ops


def batches(args):
    """Batches of float32[N,3,S,S] and N paths."""

    def example(path):
        image = ops.decode_image(gp.io.read_file(path), channels=3)
        image = ops.center_crop(ops.resize_shorter(image, args.size * 8 // 7), (args.size, args.size))
        return ops.transpose(ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)), path

    paths = gp.Dataset.list_files(f"{args.folder}/**/*.*", shuffle=False)
    options = gp.Options(on_error="skip", error_manifest=f"{args.out}.bad.jsonl")
    return paths.map(example).batch(args.batch).prefetch(gp.AUTOTUNE).with_options(options)


@torch.inference_mode()
def main(args):
    """Classify."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = network().eval().to(device)
    model.load_state_dict(torch.load(args.checkpoint, map_location=device)["model"])
    items = iter(batches(args).as_torch(device))

    place, done = f"{args.out}.place.json", 0
    if os.path.exists(place):
        with open(place) as file:
            saved = json.load(file)
        items.load_state_dict(saved["items"])
        done = saved["bytes"]
    with open(args.out, "a", newline="") as out:
        out.truncate(done)  # rows behind the saved place come again
        rows = csv.writer(out)
        for step, (images, paths) in enumerate(items, 1):
            scores, classes = model(images).softmax(1).max(1)
            rows.writerows(zip(map(os.fsdecode, paths), classes.tolist(), scores.tolist(), strict=True))
            if step % args.save_every == 0:
                out.flush()
                with open(f"{place}.new", "w") as file:
                    json.dump({"bytes": os.fstat(out.fileno()).st_size, "items": items.state_dict()}, file)
                os.replace(f"{place}.new", place)
            if step == args.steps:
                return
    print(f"{args.out}: complete, {items.left_out} files left out")
    if os.path.exists(place):
        os.remove(place)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--checkpoint", default="run.pt")
    parser.add_argument("--out", default="classes.csv")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--save-every", type=int, default=100, help="batches")
    parser.add_argument("--steps", type=int, help="stop after so many, as a machine may that is taken away")
    main(parser.parse_args())
