"""linear and matmul.

Every input is a float32 number held in float64, so that a float32 run computes on the same values."""
import torch
import torch.nn.functional as F

from make_cases import Case, generator

INF, NAN = float("inf"), float("nan")


def normal(shape, random) -> torch.Tensor:
    return torch.randn(shape, generator=random).float().double()


# input, outputs, bias
LINEAR = [
    ((3, 4), 5, True), ((3, 4), 5, False), ((1, 1), 1, True), ((7,), 3, True), ((7,), 3, False), ((1, 9), 6, True), ((1, 9), 1, False),
    ((2, 3, 4), 5, True), ((2, 1, 3, 2), 4, True), ((2, 3, 4), 5, False), ((9, 1), 2, True), ((5, 33), 2, True), ((4, 16), 16, True),
    ((5, 17), 19, False), ((2, 8), 31, True), ((33, 3), 2, True), ((0, 4), 3, True), ((2, 0, 4), 3, True), ((3, 0), 2, True),
    ((0, 4), 3, False), ((2, 300), 2, True), ((1, 2, 1, 1, 3), 2, True),
]  # fmt: skip

# a, b, transpose_a, transpose_b
MATMUL = [
    ((3, 4), (4, 5), False, False), ((4, 3), (4, 5), True, False), ((3, 4), (5, 4), False, True), ((4, 3), (5, 4), True, True),
    ((1, 1), (1, 1), False, False), ((1, 6), (6, 1), False, False), ((6, 1), (1, 5), False, False), ((1, 6), (6, 7), False, False),
    ((6, 1), (7, 6), True, True), ((7, 6), (6, 1), False, False), ((2, 3, 4), (2, 4, 5), False, False), ((2, 3, 4), (4, 5), False, False),
    ((3, 4), (2, 4, 5), False, False), ((2, 4, 3), (5, 4), True, True), ((2, 4, 3), (4, 2), True, False), ((2, 3, 4), (5, 4), False, True),
    ((2, 1, 3, 2), (3, 2, 4), False, False), ((2, 1, 2, 3), (3, 4, 2), True, True), ((1, 3, 2), (4, 2, 3), False, False),
    ((2, 3, 1, 4), (1, 3, 5, 4), False, True), ((17, 9), (9, 33), False, False), ((2, 300), (300, 2), False, False),
    ((0, 3), (3, 2), False, False), ((2, 3), (3, 0), False, False), ((2, 0), (0, 3), False, False), ((0, 2, 3), (3, 4), False, False),
    ((0, 2, 3), (0, 3, 4), False, False), ((2, 3, 4), (1, 4, 2), False, False),
]  # fmt: skip

SPECIAL = [
    ([[INF, 1.0], [0.0, 2.0]], [[0.0, 1.0], [1.0, 1.0]]),
    ([[NAN, 1.0], [0.0, 2.0]], [[0.0, 1.0], [1.0, 1.0]]),
    ([[INF, -INF], [1.0, 2.0]], [[1.0, 0.0], [1.0, 1.0]]),
]


def product(transpose_a: bool, transpose_b: bool):
    return lambda a, b: torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


def cases():
    for shape, outputs, bias in LINEAR:
        random = generator(f"linear {shape} {outputs} {bias}")
        inputs = [normal(shape, random), normal((outputs, shape[-1]), random)]
        yield Case("linear", inputs + ([normal((outputs,), random)] if bias else []), F.linear)
    for a, b, transpose_a, transpose_b in MATMUL:
        random = generator(f"matmul {a} {b} {transpose_a} {transpose_b}")
        attributes = {name: True for name, value in (("transpose_a", transpose_a), ("transpose_b", transpose_b)) if value}
        yield Case("matmul", [normal(a, random), normal(b, random)], product(transpose_a, transpose_b), attributes)
    for a, b in SPECIAL:
        yield Case("matmul", [torch.tensor(a), torch.tensor(b)], torch.matmul, gradient=False)
        yield Case("linear", [torch.tensor(a), torch.tensor(b)], F.linear, gradient=False)
