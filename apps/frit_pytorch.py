#!/usr/bin/env python3
"""Moves a model's weights between PyTorch and frit; also a module to import: export, write_case, load, with_normalization, and MODELS, frit's
models in PyTorch.

  frit_pytorch.py export MODEL STATE_DICT.pt --output weights.safetensors [--config JSON] [--normalization JSON] [--case case.safetensors]
  frit_pytorch.py import weights.safetensors --output STATE_DICT.pt

`export` writes a checkpoint for `frit infer` and `frit train`, and with --case also what PyTorch computes with these weights, in float64, for
`frit verify`. `import` reads a checkpoint of frit's, and writes the state_dict of that model. Needs PyTorch and safetensors.

A checkpoint of `frit train --normalize` has a normalisation of its input, which frit computes before the model. A state_dict has none: `import`
says which it is, so that the inputs can be normalised in PyTorch, and notes it in the file, next to the weights, where `export` finds it. Weights
that were saved from PyTorch are exported with --normalization.
"""

import argparse
import copy
import json
import math
import os
import pickle
import sys

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional


class ConvInstanceNormMax(nn.Module):
    def __init__(self, in_channels=3, out_channels=16, kernel_size=3, padding=0, clamp_min=-1.0, clamp_max=1.0):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, padding=padding)
        self.multiplier = nn.Parameter(torch.randn(out_channels, 1, 1, 1))
        self.clamp_min, self.clamp_max = clamp_min, clamp_max

    def forward(self, x):
        x = functional.instance_norm(self.conv(x) * self.multiplier)
        return torch.max(x.clamp(self.clamp_min, self.clamp_max) * self.multiplier, dim=1).values


class ConvGroupNormPool(nn.Module):
    def __init__(self, in_channels=8, out_channels=64, kernel_size=3, num_groups=16, pool_kernel_size=4, clamp_min=0.0, clamp_max=1.0):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)
        self.scale = nn.Parameter(torch.ones(out_channels, 1, 1))
        self.pool_kernel_size, self.clamp_min, self.clamp_max = pool_kernel_size, clamp_min, clamp_max

    def forward(self, x):
        x = self.group_norm(self.conv(x)) * self.scale
        return functional.max_pool2d(x, self.pool_kernel_size).clamp(self.clamp_min, self.clamp_max)


class ConvTransposeLogSumExp(nn.Module):
    def __init__(self, in_channels=3, out_channels=16, kernel_size=3, stride=2, padding=1):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.bias = nn.Parameter(torch.randn(1, 1, 1, 1))

    def forward(self, x):
        x = self.conv_transpose(x).logsumexp(dim=1, keepdim=True)
        return (x * torch.sigmoid(x + 3) / 6 - self.bias).clamp(-1, 1)


class Classifier(nn.Module):
    def __init__(self, in_channels=1, image_size=(28, 28), num_classes=10, pool_kernel_size=2, **block):
        super().__init__()
        self.block = ConvGroupNormPool(in_channels, pool_kernel_size=pool_kernel_size, **block)
        with torch.no_grad():
            features = self.block(torch.zeros(1, in_channels, *image_size)).numel()
        self.linear = nn.Linear(features, num_classes)

    def forward(self, x):
        return self.linear(self.block(x).flatten(1))


def resnet(blocks=(3, 4, 6, 3), bottleneck=True, in_channels=3, width=64, num_classes=1000):
    """torchvision's, which has four stages, three input channels and 64 channels in the first stage."""
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

    if len(blocks) != 4 or in_channels != 3 or width != 64:
        raise ValueError("torchvision's ResNet has 4 stages, in_channels 3 and width 64")
    return ResNet(Bottleneck if bottleneck else BasicBlock, list(blocks), num_classes=num_classes)


def mobilenet_v2(blocks=(1, 2, 3, 4, 3, 3, 1), width=1.0, in_channels=3, num_classes=1000):
    """torchvision's, which has three input channels, without its dropout."""
    from torchvision.models import mobilenet_v2

    if in_channels != 3:
        raise ValueError("torchvision's MobileNetV2 has in_channels 3")
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    setting = [[t, c, n, s] for (t, c, _, s), n in zip(stages, blocks)]
    model = mobilenet_v2(num_classes=num_classes, width_mult=width, inverted_residual_setting=setting)
    model.classifier[0] = nn.Identity()
    return model


def convnext_tiny(blocks=(3, 3, 9, 3), in_channels=3, width=96, num_classes=1000):
    """torchvision's, which has three input channels, without stochastic depth."""
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    if in_channels != 3:
        raise ValueError("torchvision's ConvNeXt has in_channels 3")
    widths = [width << i for i in range(len(blocks))] + [None]
    setting = [CNBlockConfig(a, b, n) for a, b, n in zip(widths, widths[1:], blocks)]
    return ConvNeXt(setting, stochastic_depth_prob=0.0, num_classes=num_classes)


class DiffusionBlock(nn.Module):
    def __init__(self, inputs, outputs, time_width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(functional.silu(self.norm1(x))) + self.time(functional.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class AttentionBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.q, self.k, self.v, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (f(y).flatten(2).transpose(1, 2) for f in (self.q, self.k, self.v))
        share = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(x.shape[1]), -1)
        return x + self.out((share @ v).transpose(1, 2).reshape(x.shape))


class UNet2d(nn.Module):
    """With time_input its second argument is the time's embedding, (N, base); without, that is all ones."""

    def __init__(self, channels=(64, 128, 256), in_channels=3, base=64, image_size=(64, 64), time_input=False):
        super().__init__()
        self.base, self.image_size, self.time_input = base, tuple(image_size), time_input
        self.time1, self.time2 = nn.Linear(base, 4 * base), nn.Linear(4 * base, 4 * base)
        self.conv_in = nn.Conv2d(in_channels, base, 3, padding=1)
        width, skips = base, [base]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for i, c in enumerate(channels):
            level = nn.Module()
            level.blocks = nn.ModuleList(DiffusionBlock(width if j == 0 else c, c, 4 * base) for j in range(2))
            skips += [c, c]
            width = c
            if i + 1 < len(channels):
                level.downsample = nn.Conv2d(c, c, 3, 2, 1)
                skips.append(c)
            self.down.append(level)
        self.middle1, self.attention = DiffusionBlock(width, width, 4 * base), AttentionBlock(width)
        self.middle2 = DiffusionBlock(width, width, 4 * base)
        for i, c in reversed(list(enumerate(channels))):
            level = nn.Module()
            level.blocks = nn.ModuleList()
            for _ in range(3):
                level.blocks.append(DiffusionBlock(width + skips.pop(), c, 4 * base))
                width = c
            if i > 0:
                level.upsample = nn.Conv2d(c, c, 3, padding=1)
            self.up.insert(0, level)
        self.norm_out, self.conv_out = nn.GroupNorm(8, width), nn.Conv2d(width, in_channels, 3, padding=1)

    def forward(self, x, t=None):
        if tuple(x.shape[2:]) != self.image_size or self.time_input != (t is not None):
            raise ValueError(f"the model takes images of {self.image_size}, and {'a' if self.time_input else 'no'} time")
        t = x.new_ones(1, self.base) if t is None else t
        t = self.time2(functional.silu(self.time1(t)))
        x = self.conv_in(x)
        skips = [x]
        for level in self.down:
            for block in level.blocks:
                x = block(x, t)
                skips.append(x)
            if hasattr(level, "downsample"):
                x = level.downsample(x)
                skips.append(x)
        x = self.middle2(self.attention(self.middle1(x, t)), t)
        for level in reversed(self.up):
            for block in level.blocks:
                x = block(torch.cat([x, skips.pop()], 1), t)
            if hasattr(level, "upsample"):
                x = level.upsample(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(functional.silu(self.norm_out(x)))


class UNetLayer(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, 3, stride, 1)
        self.norm = nn.InstanceNorm3d(outputs, affine=True)

    def forward(self, x):
        return functional.leaky_relu(self.norm(self.conv(x)), 0.01)


class UNetStage(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.convs = nn.Sequential(UNetLayer(inputs, outputs, stride), UNetLayer(outputs, outputs, 1))

    def forward(self, x):
        return self.convs(x)


class UNet3d(nn.Module):
    def __init__(self, channels=(32, 64, 128, 256, 320), in_channels=1, num_classes=3):
        super().__init__()
        channels = list(channels)
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.stages = nn.ModuleList(
            UNetStage(a, b, 1 if i == 0 else 2) for i, (a, b) in enumerate(zip([in_channels] + channels, channels))
        )
        coarse, fine = channels[:0:-1], channels[-2::-1]
        self.decoder.transpconvs = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in zip(coarse, fine))
        self.decoder.stages = nn.ModuleList(UNetStage(2 * b, b, 1) for b in fine)
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


MODELS = {
    "conv3d-instnorm-max": ConvInstanceNormMax,
    "conv2d-groupnorm-pool": ConvGroupNormPool,
    "convt3d-logsumexp": ConvTransposeLogSumExp,
    "classifier": Classifier,
    "resnet": resnet,
    "mobilenet_v2": mobilenet_v2,
    "convnext_tiny": convnext_tiny,
    "unet2d": UNet2d,
    "unet3d": UNet3d,
}


def make(name, config):
    """The PyTorch form of the model that frit knows as `name`."""
    if name not in MODELS:
        raise ValueError(f'unknown model "{name}"; models: {" ".join(MODELS)}')
    try:
        return MODELS[name](**config)
    except TypeError as error:
        raise ValueError(f"the configuration of {name}: {error}") from None


def write(path, save):
    """Runs save(path) next to the file, so that a failure leaves the old one."""
    temporary = f"{path}.tmp.{os.getpid()}"
    try:
        save(temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def per_channel(model, x, values):
    """One number a channel, to stand against the model's input x."""
    dtype = next(model.parameters()).dtype
    return torch.tensor(values, dtype=dtype, device=x.device).reshape(-1, *[1] * (x.dim() - 2))


def normalize(model, inputs):
    """What runs before the forward of a module with a normalisation."""
    x, n = inputs[0], model.frit_normalization
    return (x - per_channel(model, x, n["subtract"])) / per_channel(model, x, n["divide"])


def with_normalization(model, normalization):
    """Has the module take its input as it is and compute (x - subtract) / divide first, as frit does after `frit train --normalize`. The
    normalisation is {"subtract": [...], "divide": [...]}, a number a channel. The state_dict stays as it was: the numbers are no part of it."""
    try:
        subtract, divide = ([float(value) for value in normalization[key]] for key in ("subtract", "divide"))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f'normalization: expected {{"subtract": [...], "divide": [...]}}, got {json.dumps(normalization)}') from None
    channels = next((part.in_channels for part in model.modules() if hasattr(part, "in_channels")), len(subtract))
    if not len(subtract) == len(divide) == channels:
        raise ValueError(f"normalization: the model takes {channels} channels, not {len(subtract)} to subtract from and {len(divide)} to divide")
    if not all(map(math.isfinite, subtract + divide)) or min(divide) <= 0:
        raise ValueError("normalization: what is subtracted must be finite, and what is divided by also above 0")
    if not hasattr(model, "frit_normalization"):
        model.register_forward_pre_hook(normalize)
    model.frit_normalization = {"subtract": subtract, "divide": divide}
    return model


def state_of(model):
    """All but the numbers of batches that batch norms have seen, which frit does not keep."""
    return {key: value.detach() for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}


def metadata_of(model, name, config):
    """What a checkpoint of frit's says of the model."""
    metadata = {"model": name, "config": json.dumps(config)}
    if hasattr(model, "frit_normalization"):
        metadata["normalization"] = json.dumps(model.frit_normalization)
    return metadata


def export(model, name, config, path):
    """Writes the weights of a module as a checkpoint of frit's model `name`, whose names its state_dict must have; and its normalisation."""
    tensors = {key: value.cpu().contiguous() for key, value in state_of(model).items()}
    metadata = {"format": "pt"} | metadata_of(model, name, config)
    write(path, lambda file: save_file(tensors, file, metadata))


def write_case(model, name, config, example, path, seed=0):
    """Writes what the module gives for the tensor `example`, and its gradients, for `frit verify`. With a normalisation, both begin before it."""
    model, x = copy.deepcopy(model).cpu().double(), example.detach().cpu().double().requires_grad_()
    output = model(x)
    cotangent = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    output.backward(cotangent)
    tensors = {"input": x, "output": output, "cotangent": cotangent, "grad.input": x.grad}
    tensors |= {f"param.{key}": value for key, value in state_of(model).items()}
    tensors |= {f"grad.{key}": value.grad for key, value in model.named_parameters()}
    tensors = {key: value.detach().contiguous() for key, value in tensors.items()}
    metadata = metadata_of(model, name, config) | {"torch": torch.__version__}
    write(path, lambda file: save_file(tensors, file, metadata))


def read(path):
    """The module of a checkpoint that frit wrote, and what its metadata say of the model."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        if "model" not in metadata:
            raise ValueError("the metadata name no model: not a checkpoint of frit?")
        stored = set(file.keys())
        averaged = "training" in metadata and "optimizer.averaged" in stored and file.get_tensor("optimizer.averaged").item() > 0
        metadata = {key: metadata[key] for key in ("model", "config", "normalization") if key in metadata}
        model = make(metadata["model"], json.loads(metadata.get("config", "{}")))
        missing = [key for key in state_of(model) if key not in stored]
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}")

        def source(key):
            """As frit takes it: of a training that kept averages, the average."""
            average = f"optimizer.{key}.average"
            return average if averaged and average in stored else key

        model.load_state_dict({key: file.get_tensor(source(key)) for key in state_of(model)}, strict=False)
    if "normalization" in metadata:
        with_normalization(model, json.loads(metadata["normalization"]))
    return model, metadata


def load(path):
    """The module of a checkpoint that frit wrote, with its weights and its normalisation: it takes the inputs that frit takes."""
    return read(path)[0]


def say(text):
    print("frit_pytorch.py:", text, file=sys.stderr)


def noted(weights, name):
    """What run_import() noted next to the weights of this model, if they come from there."""
    notes = getattr(weights, "_metadata", {}).get("", {}).get("frit", {})
    return notes if notes.get("model") == name else {}


def run_export(arguments):
    weights = torch.load(arguments.state_dict, map_location="cpu", weights_only=True)
    if not isinstance(weights, dict):
        raise ValueError(f"{arguments.state_dict}: a {type(weights).__name__}, not a state_dict")
    notes = noted(weights, arguments.model)
    config = json.loads(notes.get("config", "{}") if arguments.config is None else arguments.config)
    model = make(arguments.model, config)
    model.load_state_dict(weights)
    normalization = notes.get("normalization", "none") if arguments.normalization is None else arguments.normalization
    if normalization != "none":
        with_normalization(model, json.loads(normalization))
        say(f"{arguments.output}: its input is normalised by {json.dumps(model.frit_normalization)}")
    export(model, arguments.model, config, arguments.output)
    if arguments.case:
        shape = [int(size) for size in arguments.input_shape.split(",")]
        example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        if normalization != "none":  # what lies where the data lay, so that the model sees the random numbers themselves
            n = model.frit_normalization
            example = example * per_channel(model, example, n["divide"]) + per_channel(model, example, n["subtract"])
        write_case(model, arguments.model, config, example, arguments.case)


def run_import(arguments):
    model, metadata = read(arguments.checkpoint)
    weights = model.state_dict()
    weights._metadata[""]["frit"] = metadata  # where PyTorch has a version for each module; load_state_dict passes over the rest
    write(arguments.output, lambda file: torch.save(weights, file))
    if "normalization" in metadata:
        normalization = json.dumps(model.frit_normalization)
        say("the weights are for inputs that are normalised, (x - subtract) / divide in each channel, which a state_dict does not do")
        say(f"normalise them so in PyTorch, and export what it saves with --normalization '{normalization}'")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("export", help="from PyTorch to frit")
    command.add_argument("model", choices=MODELS, metavar="MODEL", help="one of " + " ".join(MODELS))
    command.add_argument("state_dict", metavar="STATE_DICT", help="what torch.save(model.state_dict(), ...) wrote")
    command.add_argument("--output", required=True, metavar="FILE", help="the checkpoint to write, .safetensors")
    command.add_argument("--config", metavar="JSON", help="the model's configuration, as `frit info MODEL` prints it; default: as imported, or {}")
    command.add_argument("--normalization", metavar="JSON", help="what `import` said of the input's normalisation, or none; default: as imported")
    command.add_argument("--case", metavar="FILE", help="also write a case for `frit verify`; needs --input-shape")
    command.add_argument("--input-shape", metavar="N,C,...", help="of the case's random input")
    command.set_defaults(run=run_export)
    command = commands.add_parser("import", help="from frit to PyTorch")
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="what frit wrote")
    command.add_argument("--output", required=True, metavar="FILE", help="the state_dict to write, for torch.load")
    command.set_defaults(run=run_import)
    arguments = parser.parse_args()
    if getattr(arguments, "case", None) and not arguments.input_shape:
        parser.error("--case needs --input-shape")
    return arguments


def main():
    arguments = parse_arguments()
    try:
        arguments.run(arguments)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError, SafetensorError) as error:
        code = 4 if isinstance(error, OSError) else 3
        say("error: " + " ".join(str(error).split()))
        sys.exit(code)


if __name__ == "__main__":
    main()
