"""instance_norm, group_norm, layer_norm, batch_norm."""
import math

import torch
import torch.nn.functional as F

from make_cases import Case, generator


def parameters(shape, g):
    return [torch.randn(shape, generator=g), torch.randn(shape, generator=g)]


def with_value(x, index, value):
    x = x.clone()
    x.view(-1)[index] = value
    return x


def instance_norm(g):
    def case(x, affine=True, **attributes):
        eps = attributes.get("eps", 1e-5)
        inputs = [x] + (parameters(x.shape[1], g) if affine else [])
        return Case("instance_norm", inputs, lambda x, w=None, b=None: F.instance_norm(x, weight=w, bias=b, eps=eps), attributes)

    shapes = [(2, 3, 4), (1, 1, 2), (2, 3, 4, 5), (3, 2, 1, 7), (1, 4, 3, 3), (2, 2, 2, 3, 4), (1, 3, 1, 1, 5), (2, 1, 17), (1, 2, 33)]
    for shape in shapes:
        yield case(torch.randn(shape, generator=g))
    for shape in [(2, 3, 4), (1, 2, 3, 5), (2, 1, 2, 2, 3), (1, 2, 16)]:
        yield case(torch.randn(shape, generator=g), affine=False)
    for eps in [0.1, 1.0, 1e-12]:
        yield case(torch.randn((2, 2, 3, 3), generator=g), eps=eps)
    yield case(torch.randn((2, 2, 3, 3), generator=g) * 100 + 50)
    yield case(torch.randn((2, 2, 9), generator=g) * 1e-30)
    yield case(torch.randn((2, 2, 9), generator=g) * 1e30)
    yield case(with_value(torch.randn((2, 2, 5), generator=g), 7, math.nan))
    yield case(with_value(torch.randn((2, 2, 5), generator=g), 3, math.inf))
    yield case(torch.randn((0, 3, 4, 4), generator=g), affine=False)  # PyTorch fails on empty ones with parameters
    yield case(torch.randn((2, 3, 0), generator=g), affine=False)


def group_norm(g):
    def case(x, num_groups, affine=True, gradient=True, **attributes):
        eps = attributes.get("eps", 1e-5)
        inputs = [x] + (parameters(x.shape[1], g) if affine else [])
        return Case("group_norm", inputs, lambda x, w=None, b=None: F.group_norm(x, num_groups, w, b, eps),
                    {"num_groups": num_groups, **attributes}, gradient)

    for shape, num_groups in [((2, 4, 3), 2), ((1, 6, 2, 2), 3), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), 3), ((1, 4, 2, 3, 2), 2), ((3, 8), 2),
                              ((2, 6), 1), ((1, 2, 17), 1), ((2, 4, 1, 1), 2), ((1, 9, 7), 3), ((2, 2, 33), 2), ((1, 12, 1, 3), 4)]:
        yield case(torch.randn(shape, generator=g), num_groups)
    for shape, num_groups in [((2, 4, 3), 2), ((1, 6), 2), ((2, 2, 3, 3), 1)]:
        yield case(torch.randn(shape, generator=g), num_groups, affine=False)
    for eps in [0.1, 1e-12]:
        yield case(torch.randn((2, 4, 3, 3), generator=g), 2, eps=eps)
    yield case(torch.randn((2, 4, 5), generator=g) * 100 - 30, 2)
    yield case(torch.randn((2, 4, 5), generator=g) * 1e-30, 2)
    yield case(torch.randn((2, 4, 5), generator=g) * 1e30, 2)
    yield case(with_value(torch.randn((2, 4, 3), generator=g), 14, math.nan), 2)
    yield case(with_value(torch.randn((2, 4, 3), generator=g), 0, -math.inf), 2)
    # One value a group, but two in the batch: the result is the bias. The gradient, exactly 0, is rounding noise in PyTorch.
    yield case(torch.randn((2, 4), generator=g), 4, gradient=False)
    yield case(torch.randn((0, 4, 3), generator=g), 2)
    yield case(torch.randn((2, 4, 0), generator=g), 2, gradient=False)  # that of the weight is NaN in PyTorch


def layer_norm(g):
    def case(x, normalized_rank=1, affine=True, **attributes):
        eps = attributes.get("eps", 1e-5)
        shape = x.shape[x.dim() - normalized_rank:]
        inputs = [x] + (parameters(shape, g) if affine else [])
        return Case("layer_norm", inputs, lambda x, w=None, b=None: F.layer_norm(x, shape, w, b, eps),
                    {"normalized_rank": normalized_rank, **attributes})

    for shape, rank in [((3, 5), 1), ((7,), 1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((2, 3, 4), 3), ((2, 2, 3, 2), 2), ((1, 2), 1), ((4, 33), 1),
                        ((1, 2, 1, 3, 2), 4), ((5, 17), 1), ((2, 64), 1), ((40, 3), 1)]:
        yield case(torch.randn(shape, generator=g), rank)
    for shape, rank in [((3, 5), 1), ((2, 3, 4), 2), ((31,), 1)]:
        yield case(torch.randn(shape, generator=g), rank, affine=False)
    for eps in [0.1, 1e-12]:
        yield case(torch.randn((4, 6), generator=g), eps=eps)
    yield case(torch.randn((4, 6), generator=g) * 100 + 50)
    yield case(torch.randn((4, 6), generator=g) * 1e-30)
    yield case(torch.randn((4, 6), generator=g) * 1e30)
    yield case(with_value(torch.randn((4, 3), generator=g), 4, math.nan))
    yield case(with_value(torch.randn((4, 3), generator=g), 0, math.inf))
    yield case(torch.randn((0, 4), generator=g))


def batch_norm(g):
    def case(x, training=True, **attributes):
        eps, momentum = attributes.get("eps", 1e-5), attributes.get("momentum", 0.1)
        channels = x.shape[1]
        running = [torch.randn(channels, generator=g), torch.rand(channels, generator=g) + 0.5]

        def function(x, w, b, mean, variance):  # the running statistics are constants to the gradient
            return F.batch_norm(x, mean.detach().clone(), variance.detach().clone(), w, b, training, momentum, eps)

        return Case("batch_norm", [x] + parameters(channels, g) + running, function, {"training": training, **attributes})

    shapes = [(3, 2, 4), (2, 3, 3, 2), (1, 2, 1, 3, 3), (5, 3), (2, 1, 17), (1, 4, 2, 2), (4, 2, 1, 1)]
    for shape in shapes:
        yield case(torch.randn(shape, generator=g))
        yield case(torch.randn(shape, generator=g), training=False)
    for training in [True, False]:
        yield case(torch.randn((3, 2, 5), generator=g), training, eps=0.1)
        yield case(torch.randn((3, 2, 5), generator=g), training, momentum=0.9)
        yield case(torch.randn((3, 2, 5), generator=g) * 100 + 50, training)
        yield case(torch.randn((3, 2, 5), generator=g) * 1e-30, training)
        yield case(with_value(torch.randn((3, 2, 5), generator=g), 12, math.nan), training)
    yield case(with_value(torch.randn((3, 2, 5), generator=g), 6, math.inf))
    yield case(torch.randn((1, 3), generator=g), training=False)


def cases():
    for family in [instance_norm, group_norm, layer_norm, batch_norm]:
        yield from family(generator(family.__name__))
