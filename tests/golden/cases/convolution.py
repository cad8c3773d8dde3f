"""Convolutions, transposed convolutions, and the data and weight gradients of convolutions as operators of their own.

Every input is a float32 number held in float64, so that a float32 run computes on the same values."""
import dataclasses
import functools

import torch
import torch.nn.functional as F

from make_cases import Case, generator


@dataclasses.dataclass
class Setting:
    batch: int
    in_channels: int
    out_channels: int
    image: tuple
    kernel: tuple
    bias: bool = True
    stride: object = 1
    padding: object = 0
    dilation: object = 1
    groups: int = 1
    output_padding: object = 0

    def options(self) -> dict:
        """The settings that are not the default; PyTorch's and our names agree."""
        plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}
        return {name: getattr(self, name) for name, default in plain.items() if getattr(self, name) != default}


S = Setting

CONVOLUTIONS = [
    S(2, 3, 4, (5, 6), (3, 3)),
    S(1, 1, 1, (1, 1), (1, 1)),
    S(3, 2, 3, (4, 4), (1, 1), bias=False),
    S(2, 3, 2, (5, 5), (1, 1), stride=2),
    S(1, 2, 3, (6, 5), (2, 4)),
    S(1, 2, 2, (7, 6), (2, 2), stride=2, bias=False),
    S(1, 2, 3, (5, 7), (3, 3), padding=1),
    S(1, 1, 2, (3, 4), (3, 2), padding=[2, 1]),
    S(2, 2, 2, (8, 7), (3, 3), stride=[2, 3], padding=[1, 0]),
    S(1, 2, 2, (9, 8), (3, 3), dilation=2),
    S(1, 2, 2, (7, 9), (3, 2), dilation=[2, 3], padding=[2, 1], bias=False),
    S(1, 4, 6, (5, 5), (3, 3), groups=2),
    S(2, 4, 4, (5, 4), (3, 3), groups=4, padding=1),
    S(1, 3, 6, (4, 5), (2, 3), groups=3, stride=2, padding=1, bias=False),
    S(1, 2, 2, (3, 3), (2, 2), padding=3),
    S(1, 2, 2, (9, 9), (2, 2), stride=4),
    S(1, 1, 2, (3, 3), (3, 3), padding=4, dilation=4, stride=3),
    S(1, 2, 3, (4, 3), (4, 3)),
    S(1, 1, 1, (1, 9), (1, 4), stride=[1, 2]),
    S(1, 2, 17, (4, 4), (3, 3), bias=False),
    S(1, 9, 2, (3, 4), (2, 2), dilation=[1, 2]),
    S(17, 1, 2, (3, 3), (2, 2)),
    S(1, 15, 2, (3, 4), (3, 3)),
    S(2, 2, 2, (6, 6), (3, 3), stride=3, dilation=2, padding=2),
    S(0, 2, 3, (4, 4), (3, 3)),
    S(0, 2, 4, (5, 4), (2, 3), groups=2, stride=2, bias=False),
    S(2, 2, 3, (3, 4, 5), (2, 3, 3)),
    S(1, 1, 1, (1, 1, 1), (1, 1, 1)),
    S(2, 2, 3, (2, 3, 2), (1, 1, 1), bias=False),
    S(1, 2, 2, (3, 4, 3), (1, 1, 1), stride=2),
    S(1, 2, 2, (4, 3, 4), (2, 2, 2)),
    S(1, 1, 2, (5, 4, 4), (2, 2, 2), stride=2, bias=False),
    S(1, 2, 2, (3, 3, 3), (3, 3, 3), padding=1),
    S(1, 1, 2, (2, 3, 4), (3, 1, 2), padding=[2, 0, 1]),
    S(1, 1, 2, (5, 6, 4), (3, 3, 2), stride=[2, 3, 1], padding=[1, 1, 0]),
    S(1, 1, 2, (5, 5, 5), (3, 3, 3), dilation=2),
    S(1, 2, 1, (4, 5, 6), (2, 2, 3), dilation=[3, 1, 2], padding=[1, 0, 2], bias=False),
    S(1, 4, 2, (3, 3, 3), (2, 2, 2), groups=2),
    S(2, 3, 3, (3, 2, 3), (2, 2, 2), groups=3, padding=1),
    S(1, 2, 4, (4, 3, 3), (3, 2, 1), groups=2, stride=2, padding=1, bias=False),
    S(1, 1, 1, (2, 2, 2), (2, 2, 2), padding=2),
    S(1, 1, 1, (6, 5, 5), (2, 1, 2), stride=[4, 3, 3]),
    S(1, 1, 1, (2, 2, 2), (2, 3, 2), padding=3, dilation=3, stride=2),
    S(1, 2, 3, (3, 2, 4), (3, 2, 4)),
    S(1, 1, 9, (2, 3, 3), (2, 2, 2), bias=False),
    S(9, 1, 1, (2, 2, 3), (1, 2, 2)),
    S(1, 1, 2, (4, 4, 4), (2, 2, 2), stride=3, dilation=2, padding=1),
    S(1, 2, 2, (1, 4, 4), (1, 3, 3), stride=[1, 2, 1]),
    S(0, 2, 3, (3, 3, 3), (2, 2, 2)),
    S(0, 2, 2, (3, 4, 3), (1, 2, 3), groups=2, padding=1, bias=False),
]

TRANSPOSED = [
    S(2, 3, 4, (3, 4), (3, 3)),
    S(1, 1, 1, (1, 1), (1, 1)),
    S(2, 2, 3, (3, 3), (1, 1), bias=False),
    S(1, 2, 3, (3, 4), (2, 4)),
    S(1, 2, 2, (3, 4), (3, 3), stride=2),
    S(1, 2, 2, (3, 4), (3, 3), stride=2, padding=1),
    S(1, 2, 2, (3, 4), (3, 3), stride=2, padding=1, output_padding=1),
    S(1, 2, 2, (3, 4), (3, 3), stride=2, padding=1, output_padding=[1, 0]),
    S(1, 2, 2, (2, 3), (2, 3), stride=3, output_padding=[1, 2], bias=False),
    S(1, 2, 2, (3, 2), (2, 2), stride=3),
    S(1, 2, 2, (3, 2), (1, 1), stride=3, output_padding=2),
    S(1, 2, 2, (3, 3), (1, 2), stride=[2, 4], padding=[0, 1], output_padding=[1, 3]),
    S(1, 2, 2, (3, 3), (3, 2), dilation=[2, 3]),
    S(1, 2, 2, (3, 3), (3, 3), dilation=2, output_padding=1, padding=1),
    S(2, 2, 2, (3, 3), (3, 3), stride=2, padding=2, dilation=3, output_padding=2),
    S(1, 1, 2, (2, 3), (2, 2), stride=2, padding=1, dilation=5, output_padding=[4, 3]),
    S(1, 2, 2, (3, 3), (3, 3), stride=4, dilation=2, padding=3),
    S(1, 2, 2, (3, 2), (3, 2), stride=3, dilation=3, padding=1, bias=False),
    S(1, 4, 6, (3, 3), (3, 3), groups=2),
    S(2, 4, 4, (3, 2), (3, 3), groups=4, stride=2, padding=1, output_padding=1),
    S(1, 3, 6, (2, 3), (2, 3), groups=3, stride=2, bias=False),
    S(1, 2, 2, (5, 5), (3, 3), padding=2),
    S(1, 2, 2, (1, 1), (3, 4), stride=2, padding=1),
    S(1, 2, 17, (2, 3), (2, 2), bias=False),
    S(9, 1, 2, (2, 2), (2, 2), stride=2),
    S(0, 2, 3, (3, 3), (3, 3), stride=2),
    S(2, 2, 3, (2, 2, 3), (2, 3, 3)),
    S(1, 1, 1, (1, 1, 1), (1, 1, 1)),
    S(2, 2, 3, (2, 1, 2), (1, 1, 1), bias=False),
    S(1, 1, 2, (2, 3, 2), (2, 2, 2)),
    S(1, 2, 2, (2, 2, 2), (3, 3, 3), stride=2),
    S(1, 3, 2, (2, 2, 2), (3, 3, 3), stride=2, padding=1),
    S(1, 2, 2, (2, 2, 2), (3, 3, 3), stride=2, padding=1, output_padding=1),
    S(1, 2, 1, (2, 2, 2), (3, 3, 3), stride=2, padding=1, output_padding=[0, 1, 0], bias=False),
    S(1, 1, 2, (2, 2, 2), (2, 2, 2), stride=3),
    S(1, 1, 2, (2, 2, 2), (1, 1, 1), stride=2, output_padding=1),
    S(1, 2, 1, (2, 2, 2), (2, 1, 2), stride=[1, 2, 3], output_padding=[0, 1, 2]),
    S(1, 1, 2, (2, 2, 3), (2, 3, 2), dilation=[3, 1, 2]),
    S(1, 1, 1, (2, 2, 2), (2, 2, 2), dilation=2, output_padding=1, padding=1),
    S(1, 1, 2, (2, 2, 2), (2, 2, 2), stride=2, dilation=3, padding=2, output_padding=2),
    S(1, 1, 1, (2, 2, 2), (3, 2, 2), stride=4, dilation=2, padding=1),
    S(1, 2, 4, (2, 2, 2), (2, 2, 2), groups=2),
    S(1, 3, 3, (2, 1, 2), (3, 3, 3), groups=3, stride=2, padding=1, output_padding=1, bias=False),
    S(1, 1, 2, (3, 3, 3), (3, 3, 3), padding=1),
    S(1, 1, 9, (1, 2, 2), (1, 2, 2), bias=False),
    S(5, 1, 1, (1, 1, 2), (2, 2, 2), stride=2),
    S(0, 2, 2, (2, 2, 2), (3, 3, 3), stride=2),
]


def normal(shape, random) -> torch.Tensor:
    return torch.randn(shape, generator=random).float().double()


def weight_and_bias(setting: Setting, shape: tuple, random) -> list:
    result = [normal(shape + setting.kernel, random)]
    return result + [normal((setting.out_channels,), random)] if setting.bias else result


def convolutions():
    for s in CONVOLUTIONS:
        rank = len(s.image)
        name = f"conv{rank}d"
        random = generator(f"{name} {s}")
        inputs = [normal((s.batch, s.in_channels) + s.image, random)]
        inputs += weight_and_bias(s, (s.out_channels, s.in_channels // s.groups), random)
        yield Case(name, inputs, functools.partial(getattr(F, name), **s.options()), s.options())
        yield from gradients(s, name, inputs[0], inputs[1])


def gradients(s: Setting, name: str, x: torch.Tensor, weight: torch.Tensor):
    output = getattr(F, name)(x, weight, **s.options())
    gradient = normal(output.shape, generator(f"{name} gradient {s}"))
    differentiable = s.batch > 0  # PyTorch's own double backward of an empty batch gives no tensor

    def data_gradient(g, w):
        return getattr(torch.nn.grad, f"{name}_input")(x.shape, w, g, **s.options())

    def weight_gradient(g, data):
        return getattr(torch.nn.grad, f"{name}_weight")(data, weight.shape, g, **s.options())

    yield Case(f"{name}_data_gradient", [gradient, weight], data_gradient, {"input_size": list(s.image), **s.options()}, differentiable)
    yield Case(f"{name}_weight_gradient", [gradient, x], weight_gradient, {"kernel_size": list(s.kernel), **s.options()}, differentiable)


def transposed():
    for s in TRANSPOSED:
        name = f"conv_transpose{len(s.image)}d"
        random = generator(f"{name} {s}")
        inputs = [normal((s.batch, s.in_channels) + s.image, random)]
        inputs += weight_and_bias(s, (s.in_channels, s.out_channels // s.groups), random)
        yield Case(name, inputs, functools.partial(getattr(F, name), **s.options()), s.options())


def special(name: str):
    """Infinite and not-a-number inputs, and a zero weight that meets them."""
    for value in (float("inf"), float("-inf"), float("nan")):
        x = torch.arange(12, dtype=torch.float64).reshape(1, 1, 3, 4)
        x[0, 0, 1, 2] = value
        weight = torch.tensor([[1.0, 0.0], [-2.0, 3.0]]).reshape(1, 1, 2, 2)
        yield Case(name, [x, weight], getattr(F, name), gradient=False)


def cases():
    yield from convolutions()
    yield from transposed()
    yield from special("conv2d")
    yield from special("conv_transpose2d")
