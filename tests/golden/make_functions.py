"""Writes golden cases of the C++ functions that are made of several operators, and of layers: float64 results and gradients of PyTorch, one
safetensors file a family.

usage: python3 make_functions.py [FAMILY...]        (needs torch, numpy, safetensors; writes functions/*.safetensors next to this file)

Each family is a function below that yields (name, inputs, function of the inputs in PyTorch) or (name, inputs, module). In a file, a case has
  tensors   "NAME.input.I"   the inputs (f64; i64 or u8 for indices and masks)
            "NAME.param.P"   a module's parameters
            "NAME.output"    the result
            "NAME.cotangent" what the result's gradient is seeded with
            "NAME.grad.I"    the gradient of input I, for floating inputs, and "NAME.grad.P" of parameter P
and the metadata "cases" names the cases. What C++ calls for a case stands in tests/models/functions_test.cpp.
"""
import itertools
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save

from make_cases import HERE, generator, with_sorted_metadata


def normal(name: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator(name)).float().double()


def indices(name: str, upper: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, upper, shape, generator=generator(name))


def shape():
    x = normal("shape", 2, 3, 4)
    yield "split", [x], lambda x: torch.cat([p * (i + 1) for i, p in enumerate(torch.split(x, 3, 2))], 2)
    yield "split_sizes", [x], lambda x: torch.split(x, [1, 2], 1)[1]
    yield "stack", [x, normal("stack", 2, 3, 4)], lambda a, b: torch.stack([a, b], 1)
    yield "stack_last", [x, x + 1, x * 2], lambda a, b, c: torch.stack([a, b, c], -1)
    yield "squeeze", [normal("squeeze", 1, 3, 1, 2)], lambda x: torch.squeeze(x)
    yield "squeeze_axis", [normal("squeeze", 1, 3, 1, 2)], lambda x: torch.squeeze(x, -2)
    yield "unsqueeze", [x], lambda x: torch.unsqueeze(x, -2)
    yield "select", [x], lambda x: torch.select(x, 1, 2)
    yield "select_back", [x], lambda x: torch.select(x, 2, -3)
    yield "tile", [x], lambda x: x.repeat(2, 1, 3)
    for size in (1, 2, 5, 6, 7, 12):
        yield f"flip_{size}", [normal("flip", 2, size, 3)], lambda x: torch.flip(x, [1])
    yield "flip_last", [x], lambda x: torch.flip(x, [-1])
    yield "roll", [x], lambda x: torch.roll(x, 3, 2)
    yield "roll_back", [x], lambda x: torch.roll(x, -5, 1)
    yield "stop_gradient", [x], lambda x: x * x.detach()


def padding():
    x = normal("padding", 2, 2, 5, 4)
    yield "reflect", [x], lambda x: F.pad(x, (3, 1, 4, 0), "reflect")
    yield "replicate", [x], lambda x: F.pad(x, (6, 1, 0, 2), "replicate")
    yield "circular", [x], lambda x: F.pad(x, (4, 1, 0, 5), "circular")
    yield "reflect_3d", [normal("padding 3", 1, 2, 3, 2, 4)], lambda x: F.pad(x, (1, 3, 1, 1, 2, 0), "reflect")


def mathematics():
    x, mask = normal("mathematics", 2, 3, 4), indices("mask", 3, 2, 3).to(torch.uint8)
    yield "prelu", [x, normal("prelu", 3)], F.prelu
    yield "prelu_one", [x, normal("prelu one", 1)], F.prelu
    other = indices("other", 3, 3).to(torch.uint8)
    yield "logical_not", [mask], torch.logical_not
    yield "logical_and", [mask, other], torch.logical_and
    yield "logical_or", [mask, other], torch.logical_or
    yield "logical_xor", [mask, other], torch.logical_xor
    yield "less", [x], lambda x: x < 0.25
    yield "greater_equal", [indices("compared", 9, 7)], lambda x: x >= 4
    yield "where_number", [mask, normal("where", 2, 3)], lambda c, x: torch.where(c != 0, x, torch.tensor(2.5))


def reduction():
    x = normal("reduction", 3, 4, 5)
    yield "variance", [x], lambda x: torch.var(x)
    yield "variance_axes", [x], lambda x: torch.var(x, (0, 2), correction=0, keepdim=True)
    yield "variance_far", [x + 2.0**20], lambda x: torch.var(x, -1)
    yield "standard_deviation", [x], lambda x: torch.std(x, 1)
    yield "standard_deviation_zero", [torch.ones(2, 3)], lambda x: torch.std(x, 1)
    yield "l2_norm", [x], lambda x: torch.linalg.vector_norm(x, dim=(1, 2))
    yield "l2_norm_zero", [torch.zeros(2, 3)], lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True)
    for size in (1, 2, 7, 8):
        yield f"cumulative_sum_{size}", [normal("cumulative", 2, size, 3)], lambda x: torch.cumsum(x, 1)
    yield "cumulative_sum_integers", [indices("cumulative", 9, 2, 5)], lambda x: torch.cumsum(x, 1)
    yield "argmin", [x], lambda x: torch.argmin(x, 1)
    yield "one_hot", [indices("one hot", 4, 2, 3)], lambda x: F.one_hot(x, 4).double()
    yield "one_hot_axis", [indices("one hot", 4, 2, 3)], lambda x: F.one_hot(x, 5).permute(0, 2, 1).double()
    yield "gather", [x, indices("gather", 4, 3, 7, 5)], lambda x, i: torch.gather(x, 1, i)
    yield "gather_repeated", [x, torch.tensor([1, 1, 1, 0]).reshape(1, 1, 4).repeat(3, 4, 1)], lambda x, i: torch.gather(x, -1, i)
    yield "top_k", [x], lambda x: torch.topk(x, 3, 1).values
    yield "top_k_indices", [x], lambda x: torch.topk(x, 5, -1).indices
    yield "embedding", [torch.tensor([[0, 2, 2], [5, 0, 2]]), normal("embedding", 6, 4)], F.embedding


def indexing():
    x, rows = normal("indexing", 3, 4, 5), torch.tensor([[0, 2, 2], [3, 0, 2]])
    tied = torch.tensor([[2.0, float("nan"), -1, 2, float("inf")], [0.0, -0.0, float("nan"), -float("inf"), float("nan")]])
    yield "index_select", [x, torch.tensor([3, 0, 0, 1, 3])], lambda x, i: torch.index_select(x, 1, i)
    yield "index_select_of_rank_2", [x, rows], lambda x, i: x[:, i]
    yield "index_select_one", [x, torch.tensor(-1) + 3], lambda x, i: x[..., i]
    yield "gather_more", [x, indices("gather more", 4, 3, 60, 5)], lambda x, i: torch.gather(x, 1, i)
    yield "sort", [x], lambda x: torch.sort(x, dim=1, stable=True).values
    yield "argsort", [tied], lambda x: torch.argsort(x, dim=-1, stable=True)
    yield "argsort_descending", [tied], lambda x: torch.argsort(x, dim=-1, descending=True, stable=True)
    yield "argsort_first_axis", [indices("argsort", 3, 70, 2)], lambda x: torch.argsort(x, dim=0, stable=True)
    yield "least_k", [x], lambda x: torch.topk(x, 2, -2, largest=False).values
    yield "least_k_indices", [x], lambda x: torch.topk(x, 4, 1, largest=False).indices
    yield "cumulative_product_of_sums", [x], lambda x: x.cumsum(0) * x.flip(2).cumsum(2).flip(2)


def grid_sample():
    image, volume = normal("grid sample 2", 2, 2, 3, 4), normal("grid sample 3", 1, 1, 2, 3, 2)
    cases = {"2d": (image, normal("grid 2", 2, 3, 2, 2)), "3d": (volume, normal("grid 3", 1, 2, 1, 3, 3))}
    for rank, mode, padding, corners in itertools.product(cases, ("nearest", "bilinear", "bicubic"), ("zeros", "border", "reflection"), (False, True)):
        if (rank, mode) == ("3d", "bicubic"):
            continue
        name = f"{mode.removeprefix('bi')}_{padding}_{rank}{'_corners' if corners else ''}"
        yield name, [*cases[rank]], lambda x, g, m=mode, p=padding, c=corners: F.grid_sample(x, g, m, p, c)


def one_axis():
    """Convolution, pooling and norms of (N, C, L)."""
    x = normal("one axis", 2, 4, 9)
    yield "conv1d", [x, normal("conv1d", 6, 4, 3), normal("bias", 6)], F.conv1d
    yield "conv1d_options", [x, normal("conv1d options", 6, 2, 3)], lambda x, w: F.conv1d(x, w, None, 2, 3, 2, 2)
    yield "conv_transpose1d", [x, normal("transposed", 4, 3, 3), normal("bias 3", 3)], F.conv_transpose1d
    yield "conv_transpose1d_options", [x, normal("transposed options", 4, 3, 3)], lambda x, w: F.conv_transpose1d(x, w, None, 3, 1, 1, 2, 1)
    yield "max_pool1d", [x], lambda x: F.max_pool1d(x, 3, 2, 1)
    yield "avg_pool1d", [x], lambda x: F.avg_pool1d(x, 2)
    weight, bias = normal("norm weight", 4), normal("norm bias", 4)
    yield "group_norm", [x, weight, bias], lambda x, w, b: F.group_norm(x, 2, w, b)
    yield "instance_norm", [x, weight, bias], lambda x, w, b: F.instance_norm(x, weight=w, bias=b)
    for number, inputs in (("", x), ("_of_rank_2", normal("rank 2", 5, 4))):
        norm = torch.nn.BatchNorm1d(4)
        torch.nn.init.normal_(norm.weight, generator=generator("batch norm"))
        yield f"batch_norm{number}", [inputs], norm


def resize():
    modes = {1: ("nearest", "linear"), 2: ("nearest", "bilinear", "bicubic"), 3: ("nearest", "trilinear")}
    sizes = {1: ((7,), (10,), (1,)), 2: ((7, 3), (2, 6)), 3: ((6, 3, 4),)}
    factors = {1: (1.3, 0.4), 2: (1.7,), 3: (2.0,)}
    inputs = {1: normal("resize 1", 2, 2, 5), 2: normal("resize 2", 1, 2, 4, 3), 3: normal("resize 3", 1, 1, 3, 2, 4)}
    for rank in (1, 2, 3):
        for mode, corners in itertools.product(modes[rank], (None, False, True)):
            if (corners is None) != (mode == "nearest"):
                continue
            name = f"{mode.removeprefix('bi').removeprefix('tri')}{'_corners' if corners else ''}"
            for size in sizes[rank]:
                yield f"{name}_size_{'x'.join(map(str, size))}", [inputs[rank]], lambda x, s=size, m=mode, c=corners: F.interpolate(x, s, mode=m, align_corners=c)
            for factor in factors[rank]:
                yield f"{name}_factor{rank}_{factor}", [inputs[rank]], lambda x, f=factor, m=mode, c=corners: F.interpolate(x, scale_factor=f, mode=m, align_corners=c)


def adaptive():
    line, image, volume = normal("adaptive 1", 2, 2, 7), normal("adaptive 2", 1, 2, 6, 5), normal("adaptive 3", 1, 1, 4, 3, 5)
    for name, inputs, size in (("1d", line, 3), ("2d_equal", image, (3, 5)), ("2d", image, (4, 3)), ("2d_larger", image, (6, 8)), ("3d", volume, 2)):
        for kind in ("avg", "max"):
            yield f"{kind}_{name}", [inputs], lambda x, k=kind, s=size: getattr(F, f"adaptive_{k}_pool{x.dim() - 2}d")(x, s)
    yield "max_ties", [torch.ones(1, 1, 5, 5)], lambda x: F.adaptive_max_pool2d(x, 3)


def focal(logits, target, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    right = p * target + (1 - p) * (1 - target)
    losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none") * (1 - right) ** gamma
    return losses * (alpha * target + (1 - alpha) * (1 - target)) if alpha >= 0 else losses


def dice(p, t, smooth=1.0, over=(2, 3)):
    return 1 - (2 * (p * t).sum(over) + smooth) / (p.sum(over) + t.sum(over) + smooth)


def loss():
    logits, target = normal("logits", 3, 4, 2), indices("target", 4, 3, 2)
    weights = normal("weights", 4).abs() + 0.1
    ignored = target.clone()
    ignored[1] = -100
    yield "weighted", [logits, target, weights], lambda x, t, w: F.cross_entropy(x, t, w.detach())
    yield "weighted_sum", [logits, target, weights], lambda x, t, w: F.cross_entropy(x, t, w.detach(), reduction="sum")
    yield "ignored", [logits, ignored], lambda x, t: F.cross_entropy(x, t)
    yield "ignored_class", [logits, target], lambda x, t: F.cross_entropy(x, t, ignore_index=2, reduction="none")
    yield "smoothed", [logits, target], lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1)
    yield "all_options", [logits, ignored, weights], lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=0.3)
    yield "all_options_none", [logits, ignored, weights], lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=0.3, reduction="none")
    yield "nll", [logits, target], lambda x, t: F.nll_loss(x, t)
    yield "nll_options", [logits, ignored, weights], lambda x, t, w: F.nll_loss(x, t, w.detach())
    p, t = normal("prediction", 3, 5), normal("truth", 3, 5)
    probabilities = torch.softmax(t, 1)
    yield "kl_divergence", [F.log_softmax(p, 1), probabilities], F.kl_div
    some = torch.where(t > 0, probabilities, 0)
    yield "kl_divergence_zeros", [F.log_softmax(p, 1), some], lambda p, t: F.kl_div(p, t.detach(), reduction="sum")
    yield "huber", [p, t], lambda p, t: F.huber_loss(p, t, delta=0.7)
    yield "huber_none", [p, t], lambda p, t: F.huber_loss(p, t, reduction="none")
    yield "smooth_l1", [p, t], lambda p, t: F.smooth_l1_loss(p, t, beta=0.6)
    yield "smooth_l1_zero", [p, t], lambda p, t: F.smooth_l1_loss(p, t, beta=0.0, reduction="sum")
    yield "focal", [p, torch.sigmoid(t)], lambda p, t: focal(p, t).mean()
    yield "focal_plain", [p, (t > 0).double()], lambda p, t: focal(p, t, -1, 1.5).sum()
    maps, classes = normal("maps", 2, 3, 2, 4), indices("classes", 3, 2, 2, 4)
    one_hot = F.one_hot(classes, 3).permute(0, 3, 1, 2).double()
    yield "dice", [maps, classes], lambda x, _: dice(x.softmax(1), one_hot).mean()
    yield "dice_sigmoid", [maps, one_hot], lambda x, t: dice(x.sigmoid(), t, 1e-5)
    yield "dice_batch", [maps.sigmoid(), one_hot], lambda x, t: dice(x, t, 0.5, (0, 2, 3)).sum()


def attention():
    q, k, v = normal("query", 2, 2, 3, 4), normal("key", 2, 2, 5, 4), normal("value", 2, 2, 5, 6)
    attend = F.scaled_dot_product_attention
    boolean = torch.tensor([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.uint8)
    yield "attention", [q, k, v], attend
    yield "attention_causal", [q, k, v], lambda q, k, v: attend(q, k, v, is_causal=True)
    yield "attention_mask", [q, k, v, boolean], lambda q, k, v, m: attend(q, k, v, m.bool())
    yield "attention_bias", [q, k, v, normal("attention bias", 2, 1, 3, 5)], attend

    class MultiHead(torch.nn.MultiheadAttention):
        def forward(self, *inputs):
            return super().forward(*(inputs * 3 if len(inputs) == 1 else inputs), need_weights=False)[0]

    def filled(module):
        for name, parameter in module.named_parameters():
            parameter.data.copy_(normal(f"multi head {name}", *parameter.shape) * 0.5)
        return module

    yield "self_attention", [normal("tokens", 2, 3, 4)], filled(MultiHead(4, 2, batch_first=True))
    yield "cross_attention", [normal("tokens", 2, 3, 4), normal("keys", 2, 5, 4), normal("values", 2, 5, 4)], filled(MultiHead(4, 2, bias=False, batch_first=True))


def layers():
    x = normal("layers", 1, 2, 6, 5)
    conv = lambda *a, **k: torch.nn.Conv2d(2, 2, *a, **k)
    yield "same", [x], conv((2, 3), padding="same", dilation=(3, 1))
    yield "same_reflect", [x], conv(4, padding="same", padding_mode="reflect")
    yield "circular", [x], conv(3, padding=(1, 2), stride=2, padding_mode="circular")
    yield "conv1d_same", [normal("line", 2, 2, 7)], torch.nn.Conv1d(2, 3, 4, padding="same")
    yield "conv_transpose1d", [normal("line", 2, 2, 7)], torch.nn.ConvTranspose1d(2, 3, 4, stride=2)
    yield "embedding", [indices("rows", 5, 3, 2)], torch.nn.Embedding(5, 3)
    yield "prelu", [x], torch.nn.PReLU(2)


def tensors_of(family: str, name: str, inputs: list, function) -> dict:
    inputs = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    output = function(*inputs)
    result = {f"input.{i}": x for i, x in enumerate(inputs)}
    result["output"] = output.to(torch.uint8) if output.dtype == torch.bool else output
    parameters = dict(function.named_parameters()) if isinstance(function, torch.nn.Module) else {}
    result.update({f"param.{key}": value for key, value in parameters.items()})
    if output.requires_grad:
        result["cotangent"] = normal(f"{family} {name} cotangent", *output.shape)
        output.backward(result["cotangent"])
        floating = {str(i): x for i, x in enumerate(inputs) if x.is_floating_point()}
        for key, x in {**floating, **parameters}.items():
            result[f"grad.{key}"] = x.grad if x.grad is not None else torch.zeros_like(x)
    return {f"{name}.{key}": tensor.detach().contiguous().clone() for key, tensor in result.items()}


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    (HERE / "functions").mkdir(exist_ok=True)
    families = [shape, padding, mathematics, reduction, indexing, grid_sample, one_axis, resize, adaptive, loss, attention, layers]
    for family in families:
        if sys.argv[1:] and family.__name__ not in sys.argv[1:]:
            continue
        tensors, names = {}, []
        for name, inputs, function in family():
            tensors.update(tensors_of(family.__name__, name, inputs, function))
            names.append(name)
        metadata = {"cases": " ".join(names), "torch": torch.__version__}
        (HERE / "functions" / f"{family.__name__}.safetensors").write_bytes(with_sorted_metadata(save(tensors, metadata)))
        print(f"{family.__name__}: {len(names)} cases")


if __name__ == "__main__":
    main()
