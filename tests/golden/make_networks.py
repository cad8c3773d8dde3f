"""Writes golden cases of the networks: what PyTorch's, torchvision's ResNet among them, compute in float64 with parameters that a formula gives.

usage: python3 make_networks.py [FILE ..]     (needs torch, torchvision, safetensors; writes networks/FILE.safetensors next to this file, or all)

A file has metadata "model", "config" (JSON), "torch", and tensors "input" (and "time", of a model that takes one), "inference" and "training" (outputs), "gradients": for each
parameter, by name, the sum of its gradient times the formula's numbers for the name "gradient of NAME", where the output's gradient is the
formula's for "cotangent". The formula stands in formula.py and in tests/models/formula.h.
"""
import json
import pathlib
import sys

import torch
from formula import fill, numbers
from make_cases import with_sorted_metadata
from safetensors.torch import save

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
from frit_pytorch import make


CASES = {  # file: model, configuration, input's shape
    "resnet18": ("resnet", dict(blocks=[2, 2, 2, 2], bottleneck=False), (2, 3, 33, 40)),
    "resnet50": ("resnet", {}, (2, 3, 40, 33)),
    "mobilenet_v2": ("mobilenet_v2", {}, (2, 3, 40, 33)),
    "convnext_tiny": ("convnext_tiny", {}, (2, 3, 40, 33)),
    "unet2d": ("unet2d", dict(channels=[16, 24, 40], base=16, image_size=[8, 12], time_input=True), (2, 3, 8, 12)),
    "unet3d": ("unet3d", dict(channels=[4, 6, 10], in_channels=2, num_classes=3), (2, 2, 8, 12, 4)),
}


def case(model, config, shape):
    module = fill(make(model, config).double())
    inputs = {"input": numbers("input", shape)}
    if config.get("time_input"):
        inputs["time"] = numbers("time", (shape[0], config["base"]))
    with torch.no_grad():
        inference = module.eval()(*inputs.values())
    training = module.train()(*inputs.values())
    (training * numbers("cotangent", tuple(training.shape))).sum().backward()
    parameters = dict(module.named_parameters())
    sums = [(parameters[name].grad * numbers("gradient of " + name, tuple(parameters[name].shape))).sum() for name in sorted(parameters)]
    tensors = inputs | {"inference": inference, "training": training.detach(), "gradients": torch.stack(sums)}
    metadata = {"model": model, "config": json.dumps(config), "torch": torch.__version__}
    return with_sorted_metadata(save({name: t.contiguous() for name, t in tensors.items()}, metadata))


for file in sys.argv[1:] or CASES:
    path = pathlib.Path(__file__).resolve().parent / "networks" / (file + ".safetensors")
    path.write_bytes(case(*CASES[file]))
    print(path.name, path.stat().st_size, "bytes")
