"""Writes golden cases 4 to 12 of each reference model, in float64, as PyTorch computes them.

usage: python3 make_models.py        (needs torch, safetensors; writes models/*.safetensors next to this file)

A file has metadata "model", "config" (JSON), "seed", "torch", and tensors "input", "param.NAME", "output", "cotangent", "grad.input" and "grad.NAME".
"""
import json
import pathlib
import sys

import torch
from make_cases import generator, with_sorted_metadata
from safetensors.torch import save
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
from frit_pytorch import ConvGroupNormPool, ConvInstanceNormMax, ConvTransposeLogSumExp


MODELS = {
    "conv3d-instnorm-max": (
        ConvInstanceNormMax,
        [  # (configuration, input shape)
            (dict(in_channels=1, out_channels=2, kernel_size=2), (3, 1, 3, 4, 5)),
            (dict(in_channels=2, out_channels=5, kernel_size=3, clamp_min=-0.25, clamp_max=0.5), (2, 2, 5, 5, 5)),
            (dict(in_channels=4, out_channels=16, kernel_size=1), (2, 4, 3, 3, 4)),
            (dict(in_channels=3, out_channels=17, kernel_size=2), (1, 3, 4, 3, 5)),
            (dict(in_channels=3, out_channels=8, kernel_size=3, clamp_min=0.1, clamp_max=3.0), (2, 3, 4, 6, 4)),
            (dict(in_channels=2, out_channels=3, kernel_size=4), (1, 2, 5, 6, 7)),
            (dict(in_channels=5, out_channels=4, kernel_size=2, clamp_min=-100.0, clamp_max=100.0), (2, 5, 3, 3, 3)),
            (dict(in_channels=1, out_channels=33, kernel_size=2), (1, 1, 3, 3, 4)),
            (dict(in_channels=2, out_channels=4, kernel_size=3, clamp_min=-0.01, clamp_max=0.01), (4, 2, 3, 4, 4)),
        ],
    ),
    "conv2d-groupnorm-pool": (
        ConvGroupNormPool,
        [
            (dict(in_channels=1, out_channels=8, kernel_size=3, num_groups=2, pool_kernel_size=2), (2, 1, 8, 8)),
            (dict(in_channels=3, out_channels=6, kernel_size=3, num_groups=1, pool_kernel_size=3), (2, 3, 11, 9)),
            (dict(in_channels=2, out_channels=6, kernel_size=2, num_groups=6, pool_kernel_size=2), (3, 2, 6, 7)),
            (dict(in_channels=4, out_channels=12, kernel_size=1, num_groups=3, pool_kernel_size=1), (2, 4, 4, 3)),
            (dict(in_channels=2, out_channels=10, kernel_size=5, num_groups=5, pool_kernel_size=4, clamp_min=-1.0), (1, 2, 13, 15)),
            (dict(in_channels=1, out_channels=64, kernel_size=3, num_groups=16, pool_kernel_size=2), (1, 1, 7, 7)),
            (dict(in_channels=3, out_channels=9, kernel_size=3, num_groups=3, pool_kernel_size=5, clamp_min=-10.0, clamp_max=10.0), (2, 3, 8, 14)),
            (dict(in_channels=2, out_channels=4, kernel_size=3, num_groups=2, pool_kernel_size=2, clamp_min=0.2, clamp_max=0.4), (4, 2, 6, 6)),
            (dict(in_channels=1, out_channels=7, kernel_size=4, num_groups=7, pool_kernel_size=3), (2, 1, 9, 10)),
        ],
    ),
    "convt3d-logsumexp": (
        ConvTransposeLogSumExp,
        [
            (dict(in_channels=1, out_channels=2, kernel_size=2, stride=1, padding=0), (2, 1, 2, 3, 4)),
            (dict(in_channels=2, out_channels=4, kernel_size=3, stride=1, padding=1), (1, 2, 3, 4, 3)),
            (dict(in_channels=2, out_channels=5, kernel_size=3, stride=3, padding=1), (2, 2, 2, 3, 2)),
            (dict(in_channels=3, out_channels=16, kernel_size=4, stride=2, padding=1), (1, 3, 2, 2, 3)),
            (dict(in_channels=3, out_channels=8, kernel_size=2, stride=2, padding=0), (2, 3, 2, 3, 3)),
            (dict(in_channels=4, out_channels=1, kernel_size=3, stride=2, padding=1), (2, 4, 3, 2, 2)),
            (dict(in_channels=2, out_channels=33, kernel_size=2, stride=2, padding=1), (1, 2, 3, 3, 3)),
            (dict(in_channels=1, out_channels=3, kernel_size=5, stride=2, padding=2), (2, 1, 2, 3, 3)),
            (dict(in_channels=5, out_channels=4, kernel_size=1, stride=2, padding=0), (3, 5, 2, 2, 3)),
        ],
    ),
}


def write(name: str, index: int, kind: type, config: dict, shape: tuple) -> None:
    source = generator(f"{name} {index}")
    model = kind(**config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5, generator=source)
    tensors = {f"param.{key}": value.detach().clone() for key, value in model.named_parameters()}
    x = torch.randn(shape, generator=source).requires_grad_()
    output = model(x)
    cotangent = torch.randn(output.shape, generator=source)
    output.backward(cotangent)
    tensors |= {"input": x.detach(), "output": output.detach(), "cotangent": cotangent, "grad.input": x.grad}
    tensors |= {f"grad.{key}": value.grad for key, value in model.named_parameters()}
    metadata = {"model": name, "config": json.dumps(config), "seed": str(index), "torch": torch.__version__}
    path = pathlib.Path(__file__).with_name("models") / f"{name}.{index}.safetensors"
    path.write_bytes(with_sorted_metadata(save({key: value.contiguous() for key, value in tensors.items()}, metadata)))
    print(f"{path.name}: {list(shape)} -> {list(output.shape)}, {path.stat().st_size} bytes")


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for name, (kind, configurations) in MODELS.items():
        for index, (config, shape) in enumerate(configurations, start=4):
            write(name, index, kind, config, shape)


if __name__ == "__main__":
    main()
