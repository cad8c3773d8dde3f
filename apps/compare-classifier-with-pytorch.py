#!/usr/bin/env python3
"""Trains the Fashion-MNIST classifier in PyTorch and in frit, in turn on the same machine, and prints test accuracy and seconds of an epoch.

The network is `frit train classifier`'s: block B (1 to 64 channels, 16 groups, pool 2) and a linear layer; Adam, learning rate 2e-3, batches
of 128. PyTorch runs eagerly with its data on the device already, and its test is not in the time; frit loads batches from the host, and its
test is. Needs PyTorch, and frit built beforehand.
"""

import argparse
import gzip
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
import torch
from frit_pytorch import Classifier
from torch.nn import functional

BATCH_SIZE = 128
LEARNING_RATE = 2e-3


def read_idx(folder, stem, device):
    path = next(path for path in sorted(Path(folder).iterdir()) if path.name.startswith(stem))
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        content = file.read()
    rank = content[3]
    shape = numpy.frombuffer(content, ">i4", rank, offset=4)
    values = numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * rank).reshape(shape)
    return torch.tensor(values, device=device)


def read_split(folder, split, device):
    images = read_idx(folder, f"{split}-images-idx3", device).float().div(255).unsqueeze(1)
    return images, read_idx(folder, f"{split}-labels-idx1", device).long()


def train_pytorch(arguments, seed, device):
    """Test accuracy in per cent, and the seconds of each epoch."""
    images, labels = read_split(arguments.data, "train", device)
    test_images, test_labels = read_split(arguments.data, "t10k", device)
    torch.manual_seed(seed)
    model = Classifier().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    seconds = []
    for _ in range(arguments.epochs):
        begin = time.perf_counter()
        order = torch.randperm(len(images), device=device)
        for batch in order.split(BATCH_SIZE):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
    with torch.no_grad():
        correct = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(test_images.split(1000), test_labels.split(1000)))
    return 100 * correct / len(test_labels), seconds


def train_frit(arguments, seed):
    command = [arguments.frit, "train", "classifier", "--data", arguments.data, "--epochs", arguments.epochs, "--batch-size", BATCH_SIZE]
    command += ["--optimizer", "adam", "--lr", LEARNING_RATE, "--seed", seed, "--device", arguments.device, "--precision", arguments.precision]
    command += ["--run-dir", "none", "--search", "exhaustive"]
    finished = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if finished.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {finished.stderr.strip()}")
    accuracy = float(re.search(r"accuracy ([\d.]+) %", finished.stdout).group(1))
    return accuracy, [float(seconds) for seconds in re.findall(r"\|  ([\d.]+) s$", finished.stderr, re.MULTILINE)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = Path(__file__).resolve().parent.parent / "build" / "release" / "frit"
    parser.add_argument("--frit", type=Path, default=built, metavar="PATH", help="the program; default: %(default)s")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu; default: %(default)s")
    parser.add_argument("--epochs", type=int, default=10, metavar="N", help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="0 to N - 1; default: %(default)s")
    parser.add_argument("--precision", choices=("f32", "f16", "bf16"), default="f32", help="frit's; default: %(default)s")
    arguments = parser.parse_args()
    medians = {"PyTorch": [], "frit": []}
    print(f"{'seed':>4}  {'program':8}  {'test accuracy':>13}  {'epoch, median':>13}")
    for seed in range(arguments.seeds):
        for program, (accuracy, seconds) in {
            "PyTorch": train_pytorch(arguments, seed, torch.device(arguments.device)),
            "frit": train_frit(arguments, seed),
        }.items():
            medians[program].append(statistics.median(seconds))
            print(f"{seed:>4}  {program:8}  {accuracy:>11.2f} %  {medians[program][-1]:>11.3f} s", flush=True)
    print(f"an epoch of PyTorch's takes {min(medians['PyTorch']) / min(medians['frit']):.2f} times as long as one of frit's")


if __name__ == "__main__":
    main()
