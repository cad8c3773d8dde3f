"""What indices name along an axis, and sorting."""
import torch
from cases.reduction import LINES, TIES, normal
from make_cases import Case, generator


def along_axis():
    shapes = [((7,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 3, 5), 1), ((2, 3, 5), -1), ((2, 3, 2, 3), 2), ((1, 1), 0), ((0, 3), 1), ((5, 1, 2), 1), ((3, 70), 1)]
    for i, (shape, axis) in enumerate(shapes):
        for keep in (False, True):
            x = normal(f"take {i}{keep}", shape)
            lines = [n for j, n in enumerate(shape) if j != axis % len(shape)]
            index = torch.randint(0, shape[axis], lines, generator=generator(f"index {i}{keep}"))
            index = index.unsqueeze(axis) if keep else index

            def wide(t, a=axis, k=keep):
                return t if k else t.unsqueeze(a)

            yield Case("take_along_axis", [x, index],
                       lambda x, n, a=axis, k=keep, w=wide: torch.take_along_dim(x, w(n), a) if k else torch.take_along_dim(x, w(n), a).squeeze(a),
                       {"axis": axis, "keep_dims": keep})
            yield Case("put_along_axis", [normal(f"put {i}{keep}", tuple(index.shape)), index],
                       lambda v, n, a=axis, s=shape, w=wide: torch.zeros(s).scatter(a, w(n), w(v)),
                       {"axis": axis, "size": shape[axis], "keep_dims": keep})


def several_a_line():
    # (shape, axis, indices' shape), which broadcast; in the last ones indices repeat much
    shapes = [((3, 5), 1, (3, 9)), ((3, 5), 0, (4, 5)), ((2, 3, 5), 1, (2, 7, 5)), ((2, 3, 5), -1, (2, 3, 2)), ((6, 4), 0, (9, 1)), ((2, 3, 5), 1, (1, 4, 1)),
              ((2, 3, 5), 2, (2, 1, 4)), ((2, 3, 4, 5), 1, (2, 6, 1, 5)), ((3, 5), 1, (3, 0)), ((3, 8), 0, (200, 1)), ((2, 50), 1, (2, 90)), ((100, 8), 0, (64, 1))]
    for i, (shape, axis, indices) in enumerate(shapes):
        index = torch.randint(0, shape[axis], indices, generator=generator(f"indices {i}"))
        values = list(shape)
        values[axis] = indices[axis]
        yield Case("take_along_axis", [normal(f"take several {i}", shape), index], lambda x, n, a=axis: torch.take_along_dim(x, n, a),
                   {"axis": axis, "keep_dims": True})
        yield Case("put_along_axis", [normal(f"put several {i}", tuple(values)), index],
                   lambda v, n, a=axis, s=shape: torch.zeros(s).scatter_add(a, n.expand_as(v), v), {"axis": axis, "size": shape[axis], "keep_dims": True})
    for dtype in (torch.int64, torch.int32, torch.uint8):
        values, index = torch.randint(0, 99, (40,), generator=generator(f"put {dtype}")).to(dtype), torch.randint(0, 7, (40,), generator=generator("bins"))
        yield Case("put_along_axis", [values, index], lambda v, n: torch.zeros(7, dtype=v.dtype).scatter_add(0, n, v), {"axis": 0, "size": 7, "keep_dims": True})


def sorting():
    def case(x, axis, descending, count=-1):
        kept = x.shape[axis] if count < 0 else count
        return Case("sort", [x], lambda x: x.sort(dim=axis, descending=descending, stable=True).values.narrow(axis, 0, kept),
                    {"axis": axis, "descending": descending, "count": count})

    equal = torch.randint(-3, 4, (5, 40), generator=generator("sorted")).double()
    equal[equal == 3] = float("nan")
    for descending in (False, True):
        for i, (shape, axis, _) in enumerate(LINES):
            yield case(normal(f"sort {i}", shape), axis, descending)
            yield case(normal(f"sort {i}", shape), axis, descending, min(2, shape[axis]))
        for values, axis in TIES:
            yield case(torch.tensor(values), axis, descending)
        for axis in (0, 1):
            yield case(equal, axis, descending)
            yield case(equal, axis, descending, 3)
        for dtype in (torch.int64, torch.int32, torch.uint8):
            yield case((equal.nan_to_num(9) + 3).to(dtype), 1, descending)
        yield case(torch.tensor([2**62, -(2**62), -1, 0]), 0, descending)
        yield case(normal("long", (1, 4100)), 1, descending, 4100 if descending else 100)
        yield case(torch.zeros(2, 0), 1, descending)
        yield case(normal("none", (2, 3)), 1, descending, 0)


def cases():
    for family in (along_axis, several_a_line, sorting):
        yield from family()
