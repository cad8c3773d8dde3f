"""Images of other sizes. A result's element i lies at step * i + offset between the input's elements."""
import itertools

import torch
from make_cases import Case, generator

MODES = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
    3: ("nearest", "nearest-exact", "trilinear"),
}
# Sizes before and after.
SIZES = {
    1: (((5,), (7,)), ((9,), (4,)), ((1,), (3,)), ((3,), (24,))),
    2: (((4, 3), (8, 6)), ((5, 7), (3, 10)), ((4, 6), (4, 1)), ((2, 2), (1, 17))),
    3: (((2, 3, 4), (4, 6, 8)), ((3, 4, 2), (2, 5, 2))),
}


def attributes(sizes, new_sizes, mode, corners):
    result = {"from": list(sizes), "to": list(new_sizes), "mode": mode.removeprefix("bi").removeprefix("tri").removesuffix("-exact")}
    for i, (size, new) in enumerate(zip(sizes, new_sizes)):
        step = size / new
        offset = 0.5 * step - 0.5
        if corners:
            step, offset = (size - 1) / (new - 1) if new > 1 else 0.0, 0.0
        if mode == "nearest":
            step, offset = torch.tensor(step, dtype=torch.float32).item(), 0.0
        if mode == "nearest-exact":
            offset = 0.5 * step
        result |= {f"step_{i}": step, f"offset_{i}": offset}
    return result


def cases():
    for rank, grid in SIZES.items():
        for (sizes, new), mode, corners in itertools.product(grid, MODES[rank], (False, True)):
            if corners and mode.startswith("nearest"):
                continue
            options = {} if mode.startswith("nearest") else {"align_corners": corners}
            x = torch.randn(1, 2, *sizes, generator=generator(f"resize {sizes} {new}"))
            yield Case("resize", [x], lambda x, n=new, m=mode, o=options: torch.nn.functional.interpolate(x, n, mode=m, **o),
                       attributes(sizes, new, mode, corners))
