"""Operators that move elements. Each one also moves integers."""
import torch
from make_cases import Case, generator


def normal(name, shape):
    return torch.randn(shape, generator=generator(name))


def integers(shape, dtype):
    return (torch.arange(int(torch.tensor(shape).prod())) % 251).reshape(shape).to(dtype)


def floating(operator, shape, function, attributes, name):
    return Case(operator, [normal(f"{operator} {name}", shape)], function, attributes)


def reshapes():
    grid = [((6,), (2, 3)), ((2, 3), (6,)), ((2, 3), (3, 2)), ((2, 3), (-1,)), ((2, 3), (-1, 2)), ((2, 3, 5), (6, 5)), ((2, 3, 5), (2, -1)), ((7,), (1, 7, 1)),
            ((1, 1), ()), ((), (1,)), ((), (1, 1, 1)), ((0, 3), (0,)), ((0, 3), (3, 0)), ((0, 3), (-1, 3)), ((2, 3), (2, 3)), ((4, 3, 2), (2, 2, 3, 2)),
            ((2, 2, 2, 2, 2), (4, 8)), ((1, 5), (5, -1))]
    for i, (shape, target) in enumerate(grid):
        yield floating("reshape", shape, lambda x, t=target: x.reshape(t), {"shape": list(target)}, i)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield Case("reshape", [integers((2, 3), dtype)], lambda x: x.reshape(3, 2), {"shape": [3, 2]})


def flattens():
    grid = [((2, 3, 5), 1, -1), ((2, 3, 5), 0, -1), ((2, 3, 5), 0, 1), ((2, 3, 5), 2, 2), ((2, 3, 5), -2, -1), ((7,), 0, 0), ((7,), 0, -1), ((), 0, -1),
            ((2, 3, 2, 2), 1, 2), ((2, 3, 2, 2), 2, 3), ((2, 3, 2, 2), 1, -1), ((0, 3, 2), 1, -1), ((0, 3, 2), 0, 1), ((2, 0, 3), 0, -1), ((1, 1), 0, 1),
            ((2, 1, 3), 1, 2), ((2, 2, 2, 2, 2), 1, 3)]
    for i, (shape, start, end) in enumerate(grid):
        yield floating("flatten", shape, lambda x, s=start, e=end: x.flatten(s, e), {"start_axis": start, "end_axis": end}, i)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield Case("flatten", [integers((2, 3, 2), dtype)], lambda x: x.flatten(1), {})


def permutes():
    grid = [((), ()), ((7,), (0,)), ((3, 5), (1, 0)), ((3, 5), (0, 1)), ((3, 5), (-1, -2)), ((2, 3, 5), (2, 0, 1)), ((2, 3, 5), (1, 2, 0)),
            ((2, 3, 5), (2, 1, 0)), ((2, 3, 5), (0, 2, 1)), ((2, 3, 5), (-2, 0, -1)), ((2, 3, 2, 3), (0, 2, 3, 1)), ((2, 3, 2, 3), (0, 3, 1, 2)),
            ((2, 3, 2, 3), (3, 2, 1, 0)), ((1, 3, 1, 2), (2, 1, 0, 3)), ((0, 3), (1, 0)), ((2, 2, 3, 2, 2), (4, 2, 0, 1, 3)), ((67, 3), (1, 0))]
    for i, (shape, axes) in enumerate(grid):
        yield floating("permute", shape, lambda x, a=axes: x.permute(a), {"axes": list(axes)}, i)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield Case("permute", [integers((2, 3, 5), dtype)], lambda x: x.permute(2, 0, 1), {"axes": [2, 0, 1]})


def slices():
    grid = [((7,), 0, 2, 5, 1), ((7,), 0, 0, 7, 1), ((7,), 0, -3, -1, 1), ((7,), 0, -100, 100, 1), ((7,), 0, 5, 2, 1), ((7,), 0, 7, 9, 1), ((7,), 0, 1, 7, 2),
            ((7,), 0, 0, 7, 3), ((7,), 0, 0, 7, 7), ((7,), 0, 3, 7, 100), ((3, 5), 0, 1, 2, 1), ((3, 5), 1, 1, 4, 1), ((3, 5), -1, 0, 5, 2),
            ((2, 7, 3), 1, 2, 7, 2), ((2, 7, 3), 1, -6, -1, 3), ((2, 7, 3), 2, 1, 3, 1), ((0, 3), 1, 1, 2, 1), ((0, 3), 0, 0, 5, 2), ((1, 1), 0, 0, 1, 1),
            ((2, 3, 2, 3), 3, 0, 3, 2)]

    def cut(x, axis, begin, end, step):
        index = [slice(None)] * x.dim()
        index[axis] = slice(begin, end, step)
        return x[tuple(index)]

    for i, (shape, axis, begin, end, step) in enumerate(grid):
        yield floating("slice", shape, lambda x, a=axis, b=begin, e=end, s=step: cut(x, a, b, e, s),
                        {"axis": axis, "begin": begin, "end": end, "step": step}, i)
    yield floating("slice", (3, 5), lambda x: x[:, 2:], {"axis": 1, "begin": 2}, "to the end")
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield Case("slice", [integers((3, 7), dtype)], lambda x: x[:, 1::2], {"axis": 1, "begin": 1, "step": 2})


def concatenations():
    grid = [([(3,), (5,)], 0), ([(1,)], 0), ([(3,), (0,), (2,)], 0), ([(2, 3), (1, 3)], 0), ([(2, 3), (2, 5)], 1), ([(2, 3), (2, 5), (2, 1)], -1),
            ([(2, 3, 5), (2, 1, 5)], 1), ([(2, 3, 5), (2, 3, 2)], 2), ([(2, 3, 5), (1, 3, 5)], -3), ([(2, 3, 2, 2), (2, 1, 2, 2)], 1), ([(0, 3), (2, 3)], 0),
            ([(0, 3), (0, 2)], 1), ([(2, 0), (2, 3)], 1), ([(1, 1)] * 7, 0), ([(1, 1)] * 7, 1), ([(2, 3)], 0), ([(2, 2, 2, 2, 2), (2, 2, 1, 2, 2)], 2),
            ([(3, 4), (3, 4), (3, 4)], 1)]
    for i, (shapes, axis) in enumerate(grid):
        yield Case("concatenate", [normal(f"concatenate {i} {j}", s) for j, s in enumerate(shapes)], lambda *x, a=axis: torch.cat(x, a), {"axis": axis})
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield Case("concatenate", [integers((2, 3), dtype), integers((2, 2), dtype)], lambda *x: torch.cat(x, 1), {"axis": 1})


def pads():
    grid = [((5,), (2,), (3,), 0), ((5,), (0,), (0,), 1), ((5,), (1,), (0,), -1.5), ((), (), (), 1), ((2, 3), (1, 0), (0, 2), 0), ((2, 3), (0, 0), (0, 1), 7),
            ((2, 3), (2, 2), (2, 2), float("inf")), ((2, 3), (0, 3), (1, 0), float("-inf")), ((1, 2, 3, 3), (0, 0, 1, 1), (0, 0, 1, 1), 0),
            ((1, 2, 3, 3), (0, 0, 0, 1), (0, 0, 1, 0), 0.25), ((1, 2, 3), (0, 2, 0), (0, 3, 0), 0), ((2, 1, 2), (1, 1, 1), (0, 0, 0), 2),
            ((0, 2), (1, 0), (0, 1), 7), ((0, 2), (0, 1), (0, 1), 7), ((1, 1), (3, 0), (0, 3), 0), ((2, 2, 2, 2, 2), (0, 1, 0, 1, 0), (1, 0, 1, 0, 1), 0),
            ((2, 67), (0, 1), (0, 1), 0)]
    for i, (shape, before, after, value) in enumerate(grid):
        amounts = [n for pair in zip(reversed(before), reversed(after)) for n in pair]
        text = value if abs(value) != float("inf") else ("inf" if value > 0 else "-inf")
        yield floating("pad", shape, lambda x, p=amounts, v=value: torch.nn.functional.pad(x, p, value=v) if p else x * 1,
                        {"before": list(before), "after": list(after), "value": text}, i)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield Case("pad", [integers((2, 3), dtype)], lambda x: torch.nn.functional.pad(x, (1, 0, 0, 1), value=9),
                   {"before": [0, 1], "after": [1, 0], "value": 9})


def expansions():
    grid = [((), ()), ((), (7,)), ((), (2, 3)), ((1,), (7,)), ((3,), (3,)), ((3,), (2, 3)), ((3,), (5, 2, 3)), ((3, 1), (3, 5)), ((1, 5), (3, 5)),
            ((1, 1), (3, 5)), ((3, 1), (-1, 5)), ((1, 3, 1), (2, -1, 4)), ((1, 3, 1), (2, 3, 1)), ((3, 1, 1), (2, 3, 4, 5)), ((2, 3), (-1, -1)),
            ((1, 3), (0, 3)), ((0, 1), (0, 3)), ((2, 1, 3, 1), (2, 2, 3, 2))]
    for i, (shape, target) in enumerate(grid):
        yield floating("expand", shape, lambda x, t=target: x.expand(t), {"shape": list(target)}, i)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield Case("expand", [integers((3, 1), dtype)], lambda x: x.expand(2, 3, 4), {"shape": [2, 3, 4]})


def cases():
    for family in (reshapes, flattens, permutes, slices, concatenations, pads, expansions):
        yield from family()
