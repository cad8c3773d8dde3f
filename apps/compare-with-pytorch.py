#!/usr/bin/env python3
"""Times the reference models in PyTorch and in frit, in turn on the same machine, and prints both with their ratio.

A forward pass and a training step (mean squared error, SGD with momentum, no gradient of the input) of each model, at the sizes that
`frit bench` takes by default on a GPU. PyTorch runs eagerly and through torch.compile, contiguous and channels-last, under autocast if the
precision is f16 or bf16. On a GPU the times are between events, with other data in the L2 cache before each step; the medians are compared.
Needs PyTorch, and frit built beforehand.
"""

import argparse
import contextlib
import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from frit_pytorch import MODELS
from torch.nn import functional


SHAPES = {"conv3d-instnorm-max": (3, 16, 32, 32), "conv2d-groupnorm-pool": (8, 128, 128), "convt3d-logsumexp": (3, 16, 32, 32)}
MODES = ("forward", "train")


class Timer:
    """Median microseconds of a call."""

    def __init__(self, device, warmup, repeats):
        self.device, self.warmup, self.repeats = device, warmup, repeats
        if device.type == "cuda":
            l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
            self.other_data = torch.empty(2 * l2_bytes, dtype=torch.uint8, device=device)

    def median(self, call):
        for _ in range(self.warmup):
            call()
        times = self.times_on_gpu(call) if self.device.type == "cuda" else [self.time_on_cpu(call) for _ in range(self.repeats)]
        return statistics.median(times)

    def times_on_gpu(self, call):
        pairs = []
        for _ in range(self.repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.other_data.zero_()
            begin.record()
            call()
            end.record()
            pairs.append((begin, end))
        torch.cuda.synchronize(self.device)
        return [1e3 * begin.elapsed_time(end) for begin, end in pairs]

    @staticmethod
    def time_on_cpu(call):
        begin = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - begin)


def make(name, batch_size, device, channels_last):
    """The model and a random input."""
    torch.manual_seed(0)
    model, x = MODELS[name]().to(device), torch.rand(batch_size, *SHAPES[name], device=device)
    if channels_last:
        layout = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
        for parameter in model.parameters():
            if parameter.dim() == x.dim():
                parameter.data = parameter.data.to(memory_format=layout)
        x = x.to(memory_format=layout)
    return model, x


def precision_of(x, arguments):
    """What a forward pass runs under."""
    if arguments.precision == "f32":
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, torch.float16 if arguments.precision == "f16" else torch.bfloat16)


def forward_call(model, x, compiled, arguments):
    run = torch.compile(model) if compiled else model

    def call():
        with torch.no_grad(), precision_of(x, arguments):
            run(x)

    return call


def train_call(model, x, compiled, arguments):
    with torch.no_grad():
        target = torch.rand_like(model(x))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def loss_of(x, target):
        return functional.mse_loss(model(x), target)

    loss = torch.compile(loss_of) if compiled else loss_of
    scaler = torch.amp.GradScaler(x.device.type, enabled=arguments.precision == "f16")

    def call():
        optimizer.zero_grad(set_to_none=True)
        with precision_of(x, arguments):
            value = loss(x, target)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()

    return call


def time_pytorch(name, mode, arguments, timer):
    """Microseconds by variant; None where PyTorch cannot run it."""
    times = {}
    for compiled in (False,) if arguments.no_compile else (False, True):
        for channels_last in (False, True):
            variant = ("compile" if compiled else "eager") + (" channels-last" if channels_last else "")
            try:
                model, x = make(name, arguments.batch_size, timer.device, channels_last)
                call = (forward_call if mode == "forward" else train_call)(model, x, compiled, arguments)
                times[variant] = timer.median(call)
            except RuntimeError as error:  # out of memory, or nothing to compile with
                print(f"{name} {mode} {variant}: {str(error).splitlines()[0]}", file=sys.stderr)
                times[variant] = None
            torch.compiler.reset()
    return times


def time_frit(name, arguments):
    """Microseconds by mode."""
    command = [arguments.frit, "bench", name, "--format", "json", "--device", arguments.device, "--math", arguments.math]
    command += ["--search", "exhaustive", "--precision", arguments.precision] + ["--deterministic"] * arguments.deterministic
    command += ["--batch-size", str(arguments.batch_size), "--warmup", str(arguments.warmup), "--repeats", str(arguments.repeats)]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {finished.stderr.strip()}")
    return {result["mode"]: result["microseconds"]["median"] for result in json.loads(finished.stdout)["results"]}


def print_table(rows):
    variants = list(rows[0]["pytorch"])
    table = [["model", "mode", *variants, "frit", "best / frit"]]
    for row in rows:
        known = [row["pytorch"][v] for v in variants if row["pytorch"][v] is not None]
        cells = [f"{row['pytorch'][v]:.1f}" if row["pytorch"][v] is not None else "-" for v in variants]
        ratio = f"{min(known) / row['frit']:.2f}" if known else "-"
        table.append([row["model"], row["mode"], *cells, f"{row['frit']:.1f}", ratio])
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = Path(__file__).resolve().parent.parent / "build" / "release" / "frit"
    parser.add_argument("--frit", type=Path, default=built, metavar="PATH", help="the program; default: %(default)s")
    names = list(SHAPES)
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="MODEL", help="default: all of " + " ".join(names))
    parser.add_argument("--batch-size", type=int, default=128, metavar="N")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu; default: %(default)s")
    parser.add_argument("--math", choices=("tf32", "strict"), default="tf32", help="of convolutions in float32; default: %(default)s")
    parser.add_argument("--precision", choices=("f32", "f16", "bf16"), default="f32", help="of activations; default: %(default)s")
    parser.add_argument("--deterministic", action="store_true", help="the same bits at every run")
    parser.add_argument("--warmup", type=int, default=20, metavar="N", help="steps before those that count; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=100, metavar="N", help="steps that count; default: %(default)s")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    device = torch.device(arguments.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", 0)
    torch.backends.cudnn.benchmark = not arguments.deterministic
    torch.use_deterministic_algorithms(arguments.deterministic, warn_only=True)  # where PyTorch has one
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = arguments.math == "tf32"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    timer = Timer(device, arguments.warmup, arguments.repeats)
    rows = []
    for name in arguments.models:
        pytorch = {mode: time_pytorch(name, mode, arguments, timer) for mode in MODES}
        gc.collect()
        torch.cuda.empty_cache()  # frit is another process on the same GPU
        frit = time_frit(name, arguments)
        rows += [{"model": name, "mode": mode, "pytorch": pytorch[mode], "frit": frit[mode]} for mode in MODES]
    if arguments.format == "json":
        print(json.dumps(rows, indent=2))
        return
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    print(f"Median microseconds of a step; batch {arguments.batch_size}, {arguments.math}, {arguments.precision}, PyTorch {torch.__version__}, {where}\n")
    print_table(rows)


if __name__ == "__main__":
    main()
