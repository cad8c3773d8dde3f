"""Reductions and softmax."""
import torch
from make_cases import Case, generator

INF, NAN = float("inf"), float("nan")

# (shape, axes, keep_dims); no axes: all
GRID = [
    ((), [], False), ((7,), [], False), ((7,), [0], True), ((3, 5), [], True), ((3, 5), [0], False), ((3, 5), [-1], True), ((5, 3), [0, 1], False),
    ((2, 3, 5), [1], False), ((2, 3, 5), [0, 2], True), ((2, 3, 5), [-2, -1], False), ((2, 3, 2, 3), [0, 2, 3], False),
    ((2, 3, 2, 3), [1, 3], False), ((2, 3, 2, 3), [3, 0], True), ((1, 4, 1, 3), [0, 2], False), ((2, 2, 3, 1, 2), [1, 4], True), ((2, 67), [1], False),
    ((67, 2), [0], False), ((0, 3), [1], False), ((2, 0, 3), [0, 2], True), ((1, 1, 1), [], False),
]
# (values, axes) of special points
SPECIAL = [
    ([[INF, 1.0], [-INF, 2.0], [INF, -INF], [NAN, 0.0]], [1]),
    ([1.0, NAN, INF, 2.0], []),
]


def normal(name, shape):
    return torch.randn(shape, generator=generator(name))


def all_axes(x, axes):
    return tuple(axes) if axes else tuple(range(x.dim()))


def sums():
    for operator, function in (("sum", torch.sum), ("mean", torch.mean)):
        for i, (shape, axes, keep) in enumerate(GRID):
            yield Case(operator, [normal(f"{operator}{i}", shape)], lambda x, a=axes, k=keep, f=function: f(x, dim=all_axes(x, a), keepdim=k),
                       {"axes": axes, "keep_dims": keep})
        for values, axes in SPECIAL:
            yield Case(operator, [torch.tensor(values)], lambda x, a=axes, f=function: f(x, dim=all_axes(x, a)), {"axes": axes})
        for shape, axes in (((0, 3), [0]), ((0,), [])):
            yield Case(operator, [torch.zeros(shape)], lambda x, a=axes, f=function: f(x, dim=all_axes(x, a)), {"axes": axes})
    for dtype in (torch.int64, torch.int32, torch.uint8):
        x = torch.randint(100, 256, (3, 7), generator=generator(f"sum {dtype}")).to(dtype)
        yield Case("sum", [x], lambda x: x.sum(1), {"axes": [1]})
    yield Case("sum", [torch.tensor([2**62, 2**61, -1])], lambda x: x.sum(), {})


# One axis: (values or shape, axis, keep_dims)
LINES = [
    ((7,), 0, False), ((7,), -1, True), ((3, 5), 0, False), ((3, 5), 1, True), ((5, 3), -1, False), ((2, 3, 5), 1, False), ((2, 3, 5), 0, True),
    ((2, 3, 2, 3), 2, False), ((2, 70), 1, False), ((70, 2), 0, False), ((1, 1), 1, False), ((0, 3), 1, False), ((1, 5, 1), 0, False),
]
TIES = [
    ([1.0, 3, 3, 2, 3], 0), ([[1.0, 2], [1, 2], [0, 2]], 0), ([1.0, NAN, 3, NAN], 0), ([-INF, -INF], 0), ([INF, INF, NAN], 0), ([-0.0, 0.0], 0),
    ([0.0, -0.0], 0), ([[NAN, 1.0], [NAN, NAN]], 1), ([[INF, -INF], [-INF, -INF]], 1),
]


def extrema():
    for operator, function in (("max", torch.max), ("min", torch.min)):
        for i, (shape, axis, keep) in enumerate(LINES):
            yield Case(operator, [normal(f"{operator}{i}", shape)], lambda x, a=axis, k=keep, f=function: f(x, a, k).values,
                       {"axis": axis, "keep_dims": keep})
        for values, axis in TIES:
            yield Case(operator, [torch.tensor(values)], lambda x, a=axis, f=function: f(x, a).values, {"axis": axis})
        equal = torch.randint(0, 3, (5, 130), generator=generator(operator)).double()
        for axis in (0, 1):
            yield Case(operator, [equal], lambda x, a=axis, f=function: f(x, a).values, {"axis": axis})
        for dtype in (torch.int64, torch.int32, torch.uint8):
            yield Case(operator, [equal.to(dtype)], lambda x, f=function: f(x, 1).values, {"axis": 1})
    for i, (shape, axis, keep) in enumerate(LINES):
        yield Case("argmax", [normal(f"argmax{i}", shape)], lambda x, a=axis, k=keep: x.max(a, k).indices, {"axis": axis, "keep_dims": keep}, gradient=False)
    for values, axis in TIES:
        yield Case("argmax", [torch.tensor(values)], lambda x, a=axis: x.max(a).indices, {"axis": axis}, gradient=False)


def shared_extrema():
    for operator, function, whole in (("amax", torch.amax, torch.max), ("amin", torch.amin, torch.min)):
        for i, (shape, axes, keep) in enumerate(GRID):
            yield Case(operator, [normal(f"{operator}{i}", shape)], lambda x, a=axes, k=keep, f=function: f(x, dim=all_axes(x, a), keepdim=k),
                       {"axes": axes, "keep_dims": keep})
        for i, axes in enumerate(([], [0], [1], [0, 1])):
            equal = torch.randint(0, 2, (3, 70), generator=generator(f"equal {operator}{i}")).double()
            yield Case(operator, [equal], lambda x, a=axes, f=function: f(x, dim=all_axes(x, a)), {"axes": axes})
        for values, _ in TIES:
            yield Case(operator, [torch.tensor(values)], lambda x, w=whole: w(x), {})
        yield Case(operator, [torch.arange(12).reshape(3, 4)], lambda x, f=function: f(x, dim=(0, 1)), {})


def log_sums():
    def function(x, axes, keep):
        return torch.logsumexp(x, all_axes(x, axes) or (0,), keepdim=keep)

    for i, (shape, axes, keep) in enumerate(GRID):
        yield Case("logsumexp", [3 * normal(f"logsumexp{i}", shape)], lambda x, a=axes, k=keep: function(x, a, k), {"axes": axes, "keep_dims": keep})
    points = [
        [[-INF, -INF], [-INF, 0.0], [INF, 0.0], [INF, INF], [NAN, 0.0], [INF, NAN], [-INF, NAN], [INF, -INF]],
        [[1e30, -1e30], [1e30, 0.0], [100.0, -100.0], [88.0, 89.0], [-104.0, -103.0]],
    ]
    for values in points:
        yield Case("logsumexp", [torch.tensor(values)], lambda x: x.logsumexp(1), {"axes": [1]})
        yield Case("logsumexp", [torch.tensor(values).t().contiguous()], lambda x: x.logsumexp(0), {"axes": [0]})
        for x in torch.tensor(values):
            yield Case("logsumexp", [x], lambda x: x.logsumexp(0), {"axes": [0]})
    # PyTorch's gradient here is exp(x - rounded result), whose rows do not sum to 1.
    large = torch.tensor([[1e8, 1e8], [-1e8, -1e8], [-1e30, -1e30]])
    yield Case("logsumexp", [large], lambda x: x.logsumexp(1), {"axes": [1]}, gradient=False)
    yield Case("logsumexp", [torch.zeros(2, 0)], lambda x: x.logsumexp(1), {"axes": [1]})
    yield Case("logsumexp", [torch.linspace(-200, 200, 300)], lambda x: x.logsumexp(0), {"axes": [0]})
    yield Case("logsumexp", [torch.linspace(200, -200, 300).reshape(150, 2)], lambda x: x.logsumexp(0), {"axes": [0]})


def softmaxes():
    shapes = [((7,), 0), ((3, 5), 0), ((3, 5), -1), ((2, 3, 5), 0), ((2, 3, 5), 1), ((2, 3, 5), 2), ((2, 3, 2, 3), 1), ((2, 3, 2, 3), -1), ((1, 1), 1),
              ((4, 1), 1), ((2, 70), 1), ((70, 2), 0), ((0, 3), 1), ((2, 0), 1), ((2, 3, 0), 1)]
    rows = [[[-INF, -INF], [-INF, 0.0]], [[INF, 0.0], [INF, INF]], [[NAN, 0.0], [1.0, 2.0]], [[1e8, 1e8], [-1e30, 1e30]], [[100.0, -100.0], [-1e4, 0.0]]]
    for operator, function in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax)):
        for i, (shape, axis) in enumerate(shapes):
            yield Case(operator, [2 * normal(f"{operator}{i}", shape)], lambda x, a=axis, f=function: f(x, a), {"axis": axis})
        for values in rows:
            yield Case(operator, [torch.tensor(values)], lambda x, f=function: f(x, 1), {"axis": 1})


def running_sums():
    def function(x, axis, exclusive, reverse):
        x = x.flip(axis) if reverse else x
        if exclusive:  # not the sum less the element, which an infinite one would spoil
            x = torch.cat([torch.zeros_like(x.narrow(axis, 0, 1)), x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        y = x.cumsum(axis)
        return y.flip(axis) if reverse else y

    infinite = torch.tensor([1.0, 2, INF, 3, -INF, 4, NAN, 5])
    inputs = [(normal(f"cumulative {i}", shape), axis) for i, (shape, axis) in enumerate(
        [((7,), 0), ((3, 5), -1), ((3, 5), 0), ((2, 3, 5), 1), ((2, 3, 2, 3), -3), ((1, 1), 1), ((2, 70, 3), 1), ((30, 12), 0)])]
    for x, axis in inputs + [(infinite, 0), (infinite.reshape(1, 8, 1).repeat(2, 1, 3), 1)]:
        for exclusive in (False, True):
            for reverse in (False, True):
                yield Case("cumulative_sum", [x], lambda x, a=axis, e=exclusive, r=reverse: function(x, a, e, r),
                           {"axis": axis, "exclusive": exclusive, "reverse": reverse})
    for shape, axis in (((1, 2100), 1), ((2, 0, 3), 1)):
        yield Case("cumulative_sum", [normal("long", shape)], lambda x, a=axis: x.cumsum(a), {"axis": axis})
    for dtype in (torch.int64, torch.int32, torch.uint8):
        x = torch.randint(100, 256, (3, 70), generator=generator(f"cumulative {dtype}")).to(dtype)
        yield Case("cumulative_sum", [x], lambda x: x.cumsum(1), {"axis": 1})


def cases():
    for family in (sums, extrema, shared_extrema, log_sums, softmaxes, running_sums):
        yield from family()
