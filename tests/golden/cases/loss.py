"""Losses."""
import torch
import torch.nn.functional as F
from make_cases import Case, generator

INF, NAN = float("inf"), float("nan")
REDUCTIONS = ("mean", "sum", "none")


def normal(name, shape):
    return torch.randn(shape, generator=generator(name))


def pairwise():
    shapes = [(7,), (3, 5), (2, 3, 5), (2, 3, 2, 2), (), (1,), (0, 3), (1031,)]
    losses = [("mean_squared_error", F.mse_loss), ("l1_loss", F.l1_loss)]
    for operator, function in losses:
        for reduction in REDUCTIONS:
            for i, shape in enumerate(shapes):
                yield Case(operator, [normal(f"{operator} {reduction} p{i}", shape), normal(f"{operator} {reduction} t{i}", shape)],
                           lambda p, t, f=function, r=reduction: f(p, t, reduction=r), {"reduction": reduction})
        # Ties, NaN, infinities
        p = torch.tensor([1.0, 2.0, NAN, 1.0, INF, INF, -INF, 0.0, -0.0])
        t = torch.tensor([1.0, 5.0, 1.0, NAN, 1.0, INF, INF, -0.0, 0.0])
        yield Case(operator, [p, t], lambda p, t, f=function: f(p, t, reduction="none"), {"reduction": "none"})
        yield Case(operator, [p[:2], t[:2]], lambda p, t, f=function: f(p, t), {})


def logistic():
    operator, function = "binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits
    shapes = [(7,), (3, 5), (2, 3, 5), (), (1,), (0, 3), (1031,)]
    for reduction in REDUCTIONS:
        for i, shape in enumerate(shapes):
            target = torch.rand(shape, generator=generator(f"{operator} {reduction} t{i}"))
            target = target.round() if i % 2 else target
            yield Case(operator, [3 * normal(f"{operator} {reduction} p{i}", shape), target], lambda p, t, r=reduction: function(p, t, reduction=r),
                       {"reduction": reduction})
    x = torch.tensor([0.0, -0.0, 1e3, -1e3, 1e3, -1e3, 40.0, -40.0, NAN, 0.0, INF, -INF])
    t = torch.tensor([0.5, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, NAN, 0.0, 0.0])
    yield Case(operator, [x, t], lambda p, t: function(p, t, reduction="none"), {"reduction": "none"})
    x = torch.tensor([-INF, -INF, -INF, -INF, INF, INF, INF, INF, NAN, 1.0])
    t = torch.tensor([0.0, 0.25, 0.5, 1.0, 0.0, 0.25, 0.5, 1.0, 0.5, 0.5])
    yield Case(operator, [x, t], lambda p, t: function(p, t, reduction="none"), {"reduction": "none"})


def classes():
    shapes = [(3, 5), (1, 1), (4, 2), (2, 3, 5), (2, 3, 2, 2), (2, 5, 1, 3, 2), (0, 3), (2, 3, 0), (5, 130), (2, 3, 300)]
    for reduction in REDUCTIONS:
        for i, shape in enumerate(shapes):
            name = f"cross_entropy {reduction} {i}"
            target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator("target " + name))
            yield Case("cross_entropy", [2 * normal(name, shape), target], lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r),
                       {"reduction": reduction})
    x = torch.tensor([[INF, 0.0], [INF, 0.0], [-INF, -INF], [-INF, 0.0], [-INF, 0.0], [NAN, 0.0], [1e30, -1e30], [1e8, 1e8], [100.0, -100.0]])
    t = torch.tensor([0, 1, 0, 0, 1, 1, 1, 0, 1])
    yield Case("cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t, reduction="none"), {"reduction": "none"})
    yield Case("cross_entropy", [x[6:], t[6:]], lambda x, t: F.cross_entropy(x, t), {})


def cases():
    for family in (pairwise, logistic, classes):
        yield from family()
