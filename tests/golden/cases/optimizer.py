"""What gradient clipping is made of: torch.nn.utils.clip_grad_norm_."""
import torch
from make_cases import Case, generator


def cases():
    groups = [[(7,)], [()], [(3, 5)], [(3, 5), (5,)], [(2, 3, 5), (), (1,)], [(0,)], [(0,), (3,)], [(1031,), (2, 3)], [(2, 2)] * 5, [(1,)] * 9]
    for i, shapes in enumerate(groups):
        for size in (1.0, 1e-3, 1e4):
            tensors = [size * torch.randn(shape, generator=generator(f"global_norm {i} {j}")) for j, shape in enumerate(shapes)]
            yield Case("global_norm", tensors, lambda *x: torch.nn.utils.get_total_norm(x), gradient=False)
    for norm in (0.0, 0.5, 1.0, 1.0000001, 2.0, 1e6, float("inf"), float("nan")):
        for max_norm in (0.5, 1.0, 10.0):
            yield Case("clip_scale", [torch.tensor(norm)], lambda n, m=max_norm: torch.clamp(m / (n + 1e-6), max=1.0), {"max_norm": max_norm}, gradient=False)
