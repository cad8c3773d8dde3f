"""Writes optimizers.safetensors: 20 steps of PyTorch's optimizers in float64, in their single-tensor form.

usage: python3 make_optimizers.py        (needs torch, safetensors)

Case K has metadata "K.operator" (sgd_update or adam_update), "K.attributes" (its JSON) and "K.rate", and tensors "K.initial" (the parameter), "K.gradients"
(one row a step) and "K.parameters" (the parameter after each step).
"""
import itertools
import json
import pathlib

import torch
from make_cases import generator, with_sorted_metadata
from safetensors.torch import save

STEPS, SIZE = 20, 11


def sgd_cases():
    for momentum, dampening, decay, nesterov in itertools.product((0.0, 0.9), (0.0, 0.3), (0.0, 0.05), (False, True)):
        if nesterov and (momentum == 0 or dampening != 0) or momentum == 0 and dampening != 0:
            continue
        attributes = {"momentum": momentum, "dampening": dampening, "weight_decay": decay, "nesterov": nesterov}
        yield "sgd_update", attributes, 0.1, lambda p, a=attributes: torch.optim.SGD([p], lr=0.1, foreach=False, **a)


def adam_cases():
    for (beta1, beta2), eps, decay, decoupled in itertools.product(((0.9, 0.999), (0.3, 0.7)), (1e-8, 1e-2), (0.0, 0.05), (False, True)):
        attributes = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": decay, "decoupled": decoupled}
        kind = torch.optim.AdamW if decoupled else torch.optim.Adam
        yield "adam_update", attributes, 0.02, lambda p, k=kind, b=(beta1, beta2), e=eps, d=decay: k([p], lr=0.02, betas=b, eps=e, weight_decay=d, foreach=False)


def main() -> None:
    torch.set_default_dtype(torch.float64)
    tensors, metadata = {}, {"torch": torch.__version__}
    for index, (operator, attributes, rate, make) in enumerate(itertools.chain(sgd_cases(), adam_cases())):
        source = generator(f"{operator} {index}")
        parameter = torch.nn.Parameter(torch.randn(SIZE, generator=source))
        tensors[f"{index}.initial"] = parameter.detach().clone()
        tensors[f"{index}.gradients"] = torch.randn(STEPS, SIZE, generator=source)
        optimizer, states = make(parameter), []
        for gradient in tensors[f"{index}.gradients"]:
            parameter.grad = gradient.clone()
            optimizer.step()
            states.append(parameter.detach().clone())
        tensors[f"{index}.parameters"] = torch.stack(states)
        metadata |= {f"{index}.operator": operator, f"{index}.attributes": json.dumps(attributes), f"{index}.rate": repr(rate)}
    metadata["cases"] = str(index + 1)
    path = pathlib.Path(__file__).with_name("optimizers.safetensors")
    path.write_bytes(with_sorted_metadata(save(tensors, metadata)))
    print(f"{index + 1} cases")


if __name__ == "__main__":
    main()
