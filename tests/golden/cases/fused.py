"""The chains after a convolution that have one fused operator each, written as the models write them."""
import math

import torch
import torch.nn.functional as F

from make_cases import Case, generator

NAN, INF = math.nan, math.inf


def with_values(x, values):
    x = x.clone()
    for index, value in values.items():
        x.view(-1)[index] = value
    return x


def whole(shape, g, most=2):
    return torch.randint(-most, most + 1, shape, generator=g).double()


def scale_instance_norm_clamp_scale_max(g):
    def case(x, scale=None, post_scale=None, **attributes):
        per_channel = (x.shape[1],) + (1,) * (x.dim() - 2)
        inputs = [x] + [torch.randn(per_channel, generator=g) if s is None else s.view(per_channel) for s in (scale, post_scale)]

        def function(x, m, n):
            y = F.instance_norm(x * m, eps=attributes.get("eps", 1e-5))
            return torch.max(torch.clamp(y, attributes.get("min"), attributes.get("max")) * n, dim=1, keepdim=attributes.get("keep_dims", False))[0]

        return Case("scale_instance_norm_clamp_scale_max", inputs, function, attributes)

    unit = {"min": -1.0, "max": 1.0}
    for shape in [(2, 4, 2, 3, 3), (1, 3, 2, 2, 5), (3, 2, 4, 3), (2, 5, 7), (1, 1, 6), (2, 1, 3, 3), (1, 16, 2, 2, 2), (1, 20, 3)]:
        yield case(torch.randn(shape, generator=g), **unit)
    for attributes in [{"min": -0.5}, {"max": 0.25}, {"min": 0.5, "max": -0.5}, {"eps": 0.5, **unit}, {"keep_dims": True, **unit}]:
        yield case(torch.randn((2, 3, 4, 2), generator=g), **attributes)
    x = torch.randn((2, 4, 3, 3), generator=g)
    yield case(x, scale=torch.tensor([1.0, -1, 0, 2]), **unit)
    yield case(x, post_scale=torch.tensor([0.0, 0, 0, 0]), **unit)
    yield case(x, post_scale=torch.tensor([1.0, 1, 1, 1]), min=-0.25, max=0.25)  # ties of saturated channels: the first one
    yield case(x, post_scale=torch.tensor([-1.0, -2, -1, -2]), **unit)
    yield case(whole((2, 5, 8), g), torch.tensor([1.0, 1, -1, 1, 0]), torch.tensor([1.0, 1, 1, -1, 2]), min=-0.75, max=0.75)
    yield case(with_values(x, {13: NAN}), **unit)
    yield case(with_values(x, {22: INF, 30: NAN}), **unit)
    yield case(x * 100 + 50, **unit)
    yield case(torch.randn((0, 3, 2, 2), generator=g), **unit)


def group_norm_scale_max_pool_clamp(g):
    def case(x, num_groups, kernel_size, weight=None, scale=None, **attributes):
        c = x.shape[1]
        inputs = [x, torch.randn(c, generator=g) if weight is None else weight, torch.randn(c, generator=g),
                  torch.randn((c, 1, 1), generator=g) if scale is None else scale.view(c, 1, 1)]
        pool = {name: attributes[name] for name in ["stride", "padding", "dilation", "ceil_mode"] if name in attributes}

        def function(x, w, b, m):
            y = F.group_norm(x, num_groups, w, b, attributes.get("eps", 1e-5)) * m
            return torch.clamp(F.max_pool2d(y, kernel_size, **pool), attributes.get("min"), attributes.get("max"))

        return Case("group_norm_scale_max_pool_clamp", inputs, function, {"num_groups": num_groups, "kernel_size": kernel_size, **attributes})

    unit = {"min": 0.0, "max": 1.0}
    for shape, groups, kernel in [((2, 4, 6, 6), 2, [2, 2]), ((1, 6, 9, 8), 3, [4, 4]), ((2, 3, 7, 5), 1, [3, 3]), ((1, 2, 5, 9), 2, [2, 3]),
                                  ((1, 1, 4, 4), 1, [4, 4]), ((2, 2, 3, 3), 1, [1, 1]), ((1, 8, 2, 2), 4, [2, 2])]:
        yield case(torch.randn(shape, generator=g), groups, kernel, **unit)
    x = torch.randn((1, 4, 5, 6), generator=g)
    for options in [dict(stride=[1, 1]), dict(padding=[1, 1]), dict(stride=[2, 1], padding=[1, 0], dilation=[2, 1]), dict(stride=[3, 4]),
                    dict(ceil_mode=True), dict(dilation=[1, 3])]:
        yield case(x, 2, [2, 2], min=-1.0, max=1.0, **options)
    yield case(x, 2, [2, 2], min=-0.5)
    yield case(x, 2, [2, 2], max=0.5)
    yield case(x, 1, [2, 2], min=1.0, max=-1.0)
    yield case(x, 4, [3, 2], eps=0.5, **unit)
    yield case(x, 2, [2, 2], weight=torch.tensor([1.0, -1, 0, 0]), scale=torch.tensor([1.0, 1, 1, -1]), min=-9.0, max=9.0)
    yield case(x, 2, [3, 3], weight=torch.tensor([1.0, -1, 2, -2]), scale=torch.tensor([0.0, -1, -1, 1]), min=-9.0, max=9.0)
    for kernel in [[2, 2], [3, 3]]:  # ties: the first of each window
        yield case(whole((2, 2, 6, 6), g, 1), 2, kernel, min=-9.0, max=9.0)
    yield case(with_values(x, {50: NAN}), 2, [2, 2], **unit)
    yield case(with_values(x, {50: INF, 51: -INF}), 2, [2, 2], **unit)
    yield case(x * 100 + 50, 2, [2, 2], **unit)
    yield case(torch.randn((0, 4, 6, 6), generator=g), 2, [2, 2], **unit)


def logsumexp_sigmoid_scale_subtract_clamp(g):
    def case(x, bias=None, **attributes):
        def function(x, b):
            y = torch.logsumexp(x, dim=1, keepdim=True)
            y = y * torch.sigmoid(y + 3) / 6
            return torch.clamp(y - b, attributes.get("min"), attributes.get("max"))

        inputs = [x, torch.randn((1, 1, 1, 1)[: x.dim() - 1], generator=g) if bias is None else torch.tensor(bias)]
        return Case("logsumexp_sigmoid_scale_subtract_clamp", inputs, function, attributes)

    unit = {"min": -1.0, "max": 1.0}
    for shape in [(2, 4, 2, 3, 3), (1, 3, 2, 2, 5), (3, 2, 4, 3), (2, 5, 7), (1, 1, 6), (2, 1, 3, 3), (1, 40, 3), (1, 16, 2, 1, 2)]:
        yield case(torch.randn(shape, generator=g), **unit)
    x = torch.randn((2, 3, 4, 2), generator=g)
    for attributes in [{"min": -0.5}, {"max": 0.25}, {"min": 0.5, "max": -0.5}, {"min": 0.0, "max": 0.1}]:
        yield case(x, **attributes)
    yield case(x, [0.0], min=-9.0, max=9.0)
    yield case(x, [100.0], **unit)  # all saturated
    for factor in [10, 50, 300]:
        yield case(x * factor, [0.5], min=-100.0, max=100.0)
    yield case(torch.zeros((1, 1, 4)), [0.0], min=0.0, max=1.0)  # at the bound
    rows = torch.tensor([[-INF, -INF, 0, 1, 5], [-INF, INF, NAN, INF, -INF], [-INF, 0, 1, -INF, 700]])
    yield case(rows.view(1, 3, 5), [0.5], min=-200.0, max=200.0)
    yield case(rows.view(1, 3, 5), [0.5], **unit)
    yield case(torch.randn((0, 3, 2, 2), generator=g), **unit)


def cases():
    for family in [scale_instance_norm_clamp_scale_max, group_norm_scale_max_pool_clamp, logsumexp_sigmoid_scale_subtract_clamp]:
        yield from family(generator(family.__name__))
