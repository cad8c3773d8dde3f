"""Writes golden cases of the networks: what torchvision's, and a U-Net spelled here, compute in float64 with parameters that a formula gives.

usage: python3 make_networks.py      (needs torch, torchvision, safetensors; writes networks/*.safetensors beside this file)

A file has metadata "model", "config" (JSON), "torch", and tensors "input", "inference" and "training" (outputs), "gradients": for each
parameter, by name, the sum of its gradient times the formula's numbers for the name "gradient of NAME", where the output's gradient is the
formula's for "cotangent". The formula stands in numbers() and in tests/models/networks_test.cpp.
"""
import json
import math
import pathlib

import numpy
import torch
import torchvision
from make_cases import with_sorted_metadata
from safetensors.torch import save
from torch import nn
from torch.nn import functional as F


def numbers(name, shape):
    """Uniform in [-1, 1), by a hash of the name and the element's number."""
    seed = sum((i + 1) * ord(c) for i, c in enumerate(name))
    x = (numpy.arange(math.prod(shape), dtype=numpy.uint64) + numpy.uint64(seed * 1000003)) * numpy.uint64(2654435761) % 2**32
    x ^= x >> numpy.uint64(16)
    x = x * numpy.uint64(2246822519) % 2**32
    x ^= x >> numpy.uint64(13)
    return torch.from_numpy(x.astype(numpy.float64) / 2**31 - 1).reshape(shape)


def initial(name, shape):
    v = numbers(name, shape)
    if len(shape) > 1:
        return v * math.sqrt(6 / math.prod(shape[1:]))
    return 1 + 0.5 * v if name.endswith(("weight", "running_var")) else 0.1 * v


class Layer(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, 3, stride, 1)
        self.norm = nn.InstanceNorm3d(outputs, affine=True)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.conv(x)), 0.01)


class Stage(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.convs = nn.Sequential(Layer(inputs, outputs, stride), Layer(outputs, outputs, 1))

    def forward(self, x):
        return self.convs(x)


class UNet3d(nn.Module):
    def __init__(self, channels, in_channels, num_classes):
        super().__init__()
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.stages = nn.ModuleList(
            Stage(a, b, 1 if i == 0 else 2) for i, (a, b) in enumerate(zip([in_channels] + channels, channels))
        )
        coarse, fine = channels[:0:-1], channels[-2::-1]
        self.decoder.transpconvs = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in zip(coarse, fine))
        self.decoder.stages = nn.ModuleList(Stage(2 * b, b, 1) for b in fine)
        self.decoder.seg_layer = nn.Conv3d(channels[0], num_classes, 1)

    def forward(self, x):
        skips = []
        for stage in self.encoder.stages:
            x = stage(x)
            skips.append(x)
        skips.pop()
        for up, stage in zip(self.decoder.transpconvs, self.decoder.stages):
            x = stage(torch.cat([up(x), skips.pop()], 1))
        return self.decoder.seg_layer(x)


UNET = dict(channels=[4, 6, 10], in_channels=2, num_classes=3)
CASES = {  # file: module, model, configuration, input's shape
    "resnet18": (lambda: torchvision.models.resnet18(), "resnet", dict(blocks=[2, 2, 2, 2], bottleneck=False), (2, 3, 33, 40)),
    "resnet50": (lambda: torchvision.models.resnet50(), "resnet", {}, (2, 3, 40, 33)),
    "unet3d": (lambda: UNet3d(**UNET), "unet3d", UNET, (2, 2, 8, 12, 4)),
}


def case(build, model, config, shape):
    module = build().double()
    state = {name: initial(name, tuple(t.shape)) for name, t in module.state_dict().items() if t.is_floating_point()}
    module.load_state_dict(state, strict=False)
    x = numbers("input", shape)
    with torch.no_grad():
        inference = module.eval()(x)
    training = module.train()(x)
    (training * numbers("cotangent", tuple(training.shape))).sum().backward()
    parameters = dict(module.named_parameters())
    sums = [(parameters[name].grad * numbers("gradient of " + name, tuple(parameters[name].shape))).sum() for name in sorted(parameters)]
    tensors = {"input": x, "inference": inference, "training": training.detach(), "gradients": torch.stack(sums)}
    metadata = {"model": model, "config": json.dumps(config), "torch": torch.__version__}
    return with_sorted_metadata(save({name: t.contiguous() for name, t in tensors.items()}, metadata))


for file, arguments in CASES.items():
    path = pathlib.Path(__file__).resolve().parent / "networks" / (file + ".safetensors")
    path.write_bytes(case(*arguments))
    print(path.name, path.stat().st_size, "bytes")
