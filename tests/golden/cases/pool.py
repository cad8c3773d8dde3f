"""max_pool2d, max_pool3d, avg_pool2d, avg_pool3d."""
import math

import torch
import torch.nn.functional as F

from make_cases import Case, generator

NAN, INF = math.nan, math.inf

# Input shape and options; PyTorch's keyword names are the attributes' names.
SETTINGS_2D = [
    ((2, 2, 4, 4), dict(kernel_size=2)),
    ((1, 3, 5, 7), dict(kernel_size=3)),
    ((1, 2, 5, 7), dict(kernel_size=3, stride=2, padding=1)),
    ((1, 2, 6, 5), dict(kernel_size=[2, 3], stride=[1, 2])),
    ((1, 2, 6, 5), dict(kernel_size=[3, 2], stride=1, padding=[1, 0])),
    ((1, 1, 5, 5), dict(kernel_size=2, ceil_mode=True)),
    ((1, 1, 6, 6), dict(kernel_size=3, stride=2, padding=1, ceil_mode=True)),
    ((1, 1, 4, 7), dict(kernel_size=2, stride=3, ceil_mode=True)),
    ((1, 1, 2, 2), dict(kernel_size=3, stride=2, ceil_mode=True)),
    ((1, 1, 3, 3), dict(kernel_size=2, stride=2, padding=1, ceil_mode=True)),
    ((1, 2, 7, 4), dict(kernel_size=[2, 1], stride=[3, 3])),
    ((1, 1, 3, 5), dict(kernel_size=[3, 5])),
    ((1, 3, 1, 1), dict(kernel_size=1)),
    ((1, 1, 4, 9), dict(kernel_size=4, stride=1, padding=2)),
    ((1, 1, 2, 21), dict(kernel_size=[1, 2], stride=[1, 2])),
    ((1, 1, 3, 20), dict(kernel_size=2, stride=1)),
    ((0, 2, 4, 4), dict(kernel_size=2)),
]
SETTINGS_3D = [
    ((1, 2, 4, 4, 2), dict(kernel_size=2)),
    ((2, 1, 3, 3, 3), dict(kernel_size=3)),
    ((1, 1, 3, 4, 5), dict(kernel_size=3, stride=2, padding=1)),
    ((1, 1, 3, 4, 5), dict(kernel_size=[1, 2, 3], stride=[1, 2, 2])),
    ((1, 1, 2, 4, 3), dict(kernel_size=[2, 3, 2], stride=1, padding=[1, 1, 0])),
    ((1, 1, 3, 3, 5), dict(kernel_size=2, ceil_mode=True)),
    ((1, 1, 4, 3, 4), dict(kernel_size=3, stride=2, padding=1, ceil_mode=True)),
    ((1, 1, 2, 5, 4), dict(kernel_size=2, stride=3, ceil_mode=True)),
    ((1, 1, 3, 2, 3), dict(kernel_size=[2, 2, 3], stride=[2, 1, 1], padding=[1, 0, 1])),
    ((1, 1, 3, 3, 3), dict(kernel_size=2, stride=2, padding=1, ceil_mode=True)),
    ((1, 1, 5, 2, 4), dict(kernel_size=[2, 1, 1], stride=[3, 1, 2])),
    ((1, 1, 2, 3, 4), dict(kernel_size=[2, 3, 4])),
    ((2, 2, 1, 1, 1), dict(kernel_size=1)),
    ((1, 1, 1, 4, 4), dict(kernel_size=[1, 2, 2])),
    ((1, 1, 2, 2, 19), dict(kernel_size=2, stride=[1, 1, 2])),
    ((0, 1, 2, 2, 2), dict(kernel_size=2)),
]
DILATED_2D = [
    ((1, 1, 6, 7), dict(kernel_size=2, stride=1, dilation=2)),
    ((1, 2, 5, 8), dict(kernel_size=[2, 3], stride=2, padding=1, dilation=[1, 2])),
    ((1, 1, 7, 7), dict(kernel_size=3, stride=2, padding=1, dilation=3, ceil_mode=True)),
]
DILATED_3D = [
    ((1, 1, 4, 4, 5), dict(kernel_size=2, stride=1, dilation=[1, 2, 3])),
    ((1, 1, 5, 3, 6), dict(kernel_size=2, padding=1, dilation=2)),
]


def max_pool(rank, function, settings, g):
    def case(x, options):
        return Case(f"max_pool{rank}d", [x], lambda x: function(x, **options), options)

    for shape, options in settings:
        yield case(torch.randn(shape, generator=g), options)
    for shape, options in settings[:3]:  # ties: the first of the equal ones has the gradient
        yield case(torch.randint(0, 3, shape, generator=g).double(), options)
    rows = [[2.0, 2, 1, 1, 3, 3, 3, 0], [1, NAN, NAN, 5, NAN, 7, 7, NAN], [-INF] * 8, [NAN, 1, 2, 3, INF, -INF, INF, 0],
            [-0.0, 0, 0, -0.0, -INF, -INF, 0, -1]]
    two_rows = torch.tensor(rows).view(1, len(rows), *[1] * (rank - 2), 2, 4)
    kernel = [1] * (rank - 2) + [2, 2]
    yield case(two_rows, dict(kernel_size=kernel))
    yield case(two_rows, dict(kernel_size=kernel, stride=1, padding=[0] * (rank - 2) + [1, 1]))


def avg_pool(rank, function, settings, g):
    def case(shape, options):
        return Case(f"avg_pool{rank}d", [torch.randn(shape, generator=g)], lambda x: function(x, **options), options)

    for shape, options in settings:
        yield case(shape, options)
        if "padding" in options:
            yield case(shape, dict(options, count_include_pad=False))
    shape, options = settings[0]
    special = torch.randn(shape, generator=g)
    special.view(-1)[:3] = torch.tensor([NAN, INF, -INF])
    yield Case(f"avg_pool{rank}d", [special], lambda x: function(x, **options), options)


def cases():
    yield from max_pool(2, F.max_pool2d, SETTINGS_2D + DILATED_2D, generator("max_pool2d"))
    yield from max_pool(3, F.max_pool3d, SETTINGS_3D + DILATED_3D, generator("max_pool3d"))
    yield from avg_pool(2, F.avg_pool2d, SETTINGS_2D, generator("avg_pool2d"))
    yield from avg_pool(3, F.avg_pool3d, SETTINGS_3D, generator("avg_pool3d"))
