"""Arithmetic, comparisons, unary functions, activations and cast.

Every input is a float32 number held in float64, so that a float32 run computes on the same values."""
import math

import torch
import torch.nn.functional as F

from make_cases import Case, generator

INF, NAN = math.inf, math.nan


def exact(x: torch.Tensor) -> torch.Tensor:
    return x.float().double()


def numbers(*values: float) -> torch.Tensor:
    return exact(torch.tensor(values, dtype=torch.float64))


def next_to(value: float, towards: float) -> float:
    """The float32 number next to `value`."""
    return torch.nextafter(torch.tensor(value, dtype=torch.float32), torch.tensor(towards, dtype=torch.float32)).item()


# Unary functions and activations ----------------------------------------------------------------------------------------------------

SHAPES = [(2, 3, 5), (7,), (1,), (), (0, 4), (2, 1, 3, 2), (3, 1, 4), (65,), (2, 2, 2, 2, 2)]


def plain_inputs(name: str, positive: bool) -> list:
    random = generator(f"{name} inputs")
    shaped = [torch.randn(shape, generator=random) for shape in SHAPES]
    scaled = [torch.randn(5, 5, generator=random) * scale for scale in (1e-6, 1e-2, 4.0, 12.0)]
    grids = [torch.linspace(-4, 4, 33), torch.linspace(-20, 20, 41), torch.linspace(-80, 80, 33)]
    inputs = [exact(x) for x in shaped + scaled + grids]
    return [x.abs() + 2**-10 for x in inputs] if positive else inputs


ZEROS = numbers(-0.0, 0.0, 0.0, -0.0, 1.0)
TINY = numbers(1e-30, -1e-30, 1e-38, -1e-38, 2**-149, -(2**-149))
LARGE = numbers(1e18, -1e18, 3e10, -3e10)
INFINITIES = numbers(INF, -INF, 1.0, -1.0, 0.0)
NANS = numbers(NAN, 1.0, -1.0, NAN, 0.0, NAN)
LAST_NAN = numbers(*range(-8, 8), NAN)
MIXED = numbers(NAN, INF, -INF, 0.0, -0.0, 2.0, -2.0, 0.5)
AWKWARD = [ZEROS, LARGE, INFINITIES, NANS, LAST_NAN, MIXED]


def unary(name, function, attributes=None, positive=False, extra=(), nan_gradient=True, key=None):
    """All plain and awkward inputs. Where PyTorch's vector and scalar loops disagree on the gradient at NaN, it is left out."""
    attributes = attributes or {}
    for x in plain_inputs(key or name, positive) + AWKWARD + list(extra):
        yield Case(name, [x], function, attributes, gradient=nan_gradient or not x.isnan().any())


def bounds(*kinks: float) -> torch.Tensor:
    """The kinks of a function and the numbers next to them."""
    return numbers(*(v for k in kinks for v in (next_to(k, -INF), k, next_to(k, INF))))


def infinite_gradients(name, function, inputs, attributes=None):
    """Gradients of a masked function are dropped even where they are not finite."""
    for value in (INF, -INF, NAN):
        yield Case(name, [inputs], function, attributes or {}, cotangent=torch.full_like(inputs, value))


def hard_sigmoid(x):
    """PyTorch's own gradient inside is the float32 neighbour of 1/6, even in float64."""
    return torch.where((x > -3) & (x < 3), x / 6 + 0.5, F.hardsigmoid(x).detach())


def unary_cases():
    yield from unary("negate", torch.neg, extra=[TINY])
    yield from unary("abs", torch.abs, extra=[TINY])
    yield from unary("exp", torch.exp, extra=[TINY, numbers(-100, -104, -1e4, 88.0, 88.5)])
    yield from unary("log", torch.log, positive=True, extra=[numbers(1, next_to(1, 0), next_to(1, 2), 2**-126, 1e30), numbers(-1, -2, 3)])
    yield from unary("sqrt", torch.sqrt, positive=True, extra=[numbers(4, 9, 2, 1e30, 1e-30), numbers(-1, -2, 3)])
    yield from unary("square", torch.square, extra=[numbers(1e-15, 1e15)])
    yield from unary("reciprocal", torch.reciprocal, extra=[numbers(1e-15, -1e15, 3.0)])
    for name in ("rsqrt", "sin", "cos", "erf", "floor", "ceil", "round", "sign", "detach"):
        positive = name == "rsqrt"
        for x in plain_inputs(name, positive)[:13] + AWKWARD + [torch.linspace(0.25 if positive else -4, 4, 33)]:
            yield Case("stop_gradient" if name == "detach" else name, [x], getattr(torch, name))

    yield from clamp_cases()
    yield from unary("relu", F.relu, extra=[TINY, bounds(0.0)])
    yield from infinite_gradients("relu", F.relu, numbers(-1, -0.0, 0, -INF))
    for slope in (0.01, 0.2, -0.5, 0.0):
        yield from unary("leaky_relu", lambda x, s=slope: F.leaky_relu(x, s), {"negative_slope": slope}, extra=[TINY], key=f"leaky_relu {slope}")
    for alpha in (1.0, 0.3, 2.5):
        yield from unary("elu", lambda x, a=alpha: F.elu(x, a), {"alpha": alpha}, nan_gradient=False, key=f"elu {alpha}")
    for form in ("none", "tanh"):
        yield from unary("gelu", lambda x, f=form: F.gelu(x, approximate=f), {"approximate": form}, key=f"gelu {form}")
    yield from unary("sigmoid", torch.sigmoid)
    yield from unary("tanh", torch.tanh, extra=[TINY, numbers(0.625, -0.625, next_to(0.625, 0), 9, -9)])
    yield from unary("silu", F.silu)
    yield from unary("mish", F.mish)
    for beta, threshold in ((1.0, 20.0), (2.0, 1.0), (0.5, 10.0), (3.0, 60.0)):
        yield from unary("softplus", lambda x, b=beta, t=threshold: F.softplus(x, b, t), {"beta": beta, "threshold": threshold},
                         extra=[bounds(threshold / beta)], key=f"softplus {beta} {threshold}")
    yield from unary("hard_sigmoid", hard_sigmoid, extra=[bounds(-3.0, 3.0)])
    yield from infinite_gradients("hard_sigmoid", hard_sigmoid, numbers(-3, 3, -4, 4, INF, -INF))
    yield from unary("hard_swish", F.hardswish, nan_gradient=False, extra=[bounds(-3.0, 3.0)])
    yield from infinite_gradients("hard_swish", F.hardswish, numbers(-3, -4, -INF))


def clamp_cases():
    """Both bounds; with a NaN for its only bound PyTorch returns the input, where frit says NaN as for two bounds."""
    for low, high in ((-1.0, 1.0), (0.25, 0.25), (None, 0.5), (-0.5, None), (1.0, -1.0), (-INF, INF), (NAN, 1.0), (-1.0, NAN)):
        function = lambda x, a=low, b=high: torch.clamp(x, a, b)
        attributes = {"min": spelled(low), "max": spelled(high)}
        kinks = [k for k in (low, high) if k is not None and math.isfinite(k)]
        extra = [TINY] + ([bounds(*kinks)] if kinks else [])
        yield from unary("clamp", function, attributes, extra=extra, key=f"clamp {low} {high}")
    outside = lambda x: torch.clamp(x, -1.0, 1.0)
    yield from infinite_gradients("clamp", outside, numbers(-2, 2, INF, -INF, NAN, 1.5), {"min": -1.0, "max": 1.0})


def spelled(bound):
    """JSON has no NaN or infinity."""
    return bound if bound is None or math.isfinite(bound) else str(bound)


# Two and three operands --------------------------------------------------------------------------------------------------------------

PAIRS = [((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((2, 3, 5), (3, 1)), ((2, 3, 5), (1, 1, 1)), ((2, 3, 5), ()), ((), (2, 3)), ((4, 1), (1, 6)),
         ((7, 1), (2, 1, 5)), ((1,), (1,)), ((), ()), ((0, 4), (4,)), ((0, 4), (0, 4)), ((3, 0), (1, 1)), ((65,), (65,)), ((2, 1, 3, 1), (4, 1, 2)),
         ((1, 3), (5, 1, 1))]

# Every awkward number against every other.
AWKWARD_NUMBERS = numbers(NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5)
TABLE = [AWKWARD_NUMBERS.reshape(8, 1), AWKWARD_NUMBERS]
ROWS = [AWKWARD_NUMBERS.repeat_interleave(8), AWKWARD_NUMBERS.repeat(8)]
TIES = [numbers(1, 2, 3, 3, 0, -0.0, INF, -INF), numbers(1, 3, 2, 3, -0.0, 0, INF, -INF)]


def random_pairs(name, transform=lambda a, b: (a, b)):
    random = generator(name)
    for first, second in PAIRS:
        a, b = transform(torch.randn(first, generator=random), torch.randn(second, generator=random))
        yield [exact(a), exact(b)]


def binary(name, function, transform=lambda a, b: (a, b), extra=()):
    for inputs in [*random_pairs(name, transform), ROWS, TABLE, TIES, *extra]:
        yield Case(name, inputs, function)


def integers(name, function):
    random = generator(name + " integers")
    draw = lambda *shape: torch.randint(-50, 50, shape, generator=random)
    for inputs in ([draw(3, 4), draw(3, 4)], [draw(3, 4), draw(4)], [draw(2, 1), draw(3)], [torch.tensor([2**40, -(2**40), 0]), draw(1)]):
        yield Case(name, inputs, function)


def binary_cases():
    away_from_zero = lambda a, b: (a, b.sign() * (b.abs() + 0.25))
    positive_base = lambda a, b: (a.abs() + 0.25, b * 2)
    ordered = [[numbers(*range(-3, 4)), numbers(0.0)], [numbers(1e18, -1e18), numbers(1e17, -1e17)]]
    for name, function in (("add", torch.add), ("subtract", torch.sub), ("multiply", torch.mul), ("minimum", torch.minimum),
                           ("maximum", torch.maximum)):
        yield from binary(name, function, extra=ordered)
        yield from integers(name, function)
    yield from binary("divide", torch.div, away_from_zero, extra=[[numbers(1, -1, 0, 2), numbers(0.0, -0.0, 0.0, 3)]] + ordered)
    yield from binary("power", torch.pow, positive_base,
                      extra=[[numbers(-3, -2, -1, 0, 1, 2, 3), numbers(e)] for e in (0, 1, 2, 3, -1, -2)] +
                      [[numbers(0, 0, 0, 0, -0.0), numbers(0, 2, 0.5, -1, 3)], [numbers(-8, -2, -0.5), numbers(3, -2, 0.5)]])
    # Rounded values tie often.
    for name, function in (("equal", torch.eq), ("not_equal", torch.ne), ("less", torch.lt), ("less_equal", torch.le), ("greater", torch.gt),
                           ("greater_equal", torch.ge)):
        yield from binary(name, function, lambda a, b: (a.round(), b.round()), extra=ordered)
        yield from integers(name, function)


def where_cases():
    random = generator("where")
    triples = [((2, 3, 5),) * 3, ((3, 1), (2, 3, 5), ()), ((5,), (), (3, 1)), ((), (7,), (7,)), ((2, 1, 1), (3, 1), (5,)), ((1,),) * 3, ((),) * 3,
               ((4,), (0, 4), (0, 1)), ((0, 2), (0, 2), (2,)), ((65,),) * 3, ((2, 1, 3), (1, 4, 1), (2, 4, 3)), ((6,), (6,), ()), ((6,), (), (6,))]
    select = lambda c, a, b: torch.where(c.bool(), a, b)
    for condition, first, second in triples:
        c = torch.randint(0, 2, condition, generator=random, dtype=torch.uint8)
        yield Case("where", [c, exact(torch.randn(first, generator=random)), exact(torch.randn(second, generator=random))], select)
    ones, zeros = torch.ones(8, dtype=torch.uint8), torch.zeros(8, dtype=torch.uint8)
    alternating = torch.tensor([0, 1, 2, 255, 0, 1, 0, 3], dtype=torch.uint8)
    plain = exact(torch.randn(8, generator=random))
    for c in (ones, zeros, alternating):
        yield Case("where", [c, AWKWARD_NUMBERS, plain], select)
        yield Case("where", [c, plain, AWKWARD_NUMBERS], select)
    yield Case("where", [alternating, plain, plain], select, cotangent=numbers(NAN, NAN, INF, -INF, INF, 1, 2, 3))
    yield Case("where", [alternating, torch.arange(8), torch.arange(8) * 10], select)


# Cast --------------------------------------------------------------------------------------------------------------------------------

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32,
          "u8": torch.uint8}


def cast_cases():
    random = generator("cast")
    halves = numbers(1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519, 65520, 2**-24, 2**-25, 3 * 2**-25, INF, -INF, NAN, -0.0, 1 + 2**-8, 1 + 3 * 2**-8)
    for name, dtype in DTYPES.items():
        convert = lambda x, d=dtype: x.to(d)
        inputs = [exact(torch.randn(shape, generator=random)) for shape in ((2, 3, 5), (), (0, 3), (65,))]
        if dtype == torch.uint8:
            inputs = [x.abs() * 50 for x in inputs]
        inputs += [halves] if dtype.is_floating_point else [numbers(0.5, 1.5, 2.5, 0.99, 100.9, 3.0)]
        for x in inputs:
            yield Case("cast", [x], convert, {"dtype": name})
        yield Case("cast", [torch.tensor([0, 1, 2, 127, 255])], convert, {"dtype": name})


def cases():
    yield from unary_cases()
    yield from binary_cases()
    yield from where_cases()
    yield from cast_cases()
