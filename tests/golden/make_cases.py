"""Writes the operators' golden cases: float64 results and gradients of PyTorch, one safetensors file an operator.

usage: python3 make_cases.py [FAMILY...]        (needs torch, numpy, safetensors; writes operators/*.safetensors next to this file)

Each module cases/<family>.py has a function cases() that yields Case objects. In a file, case K has
  metadata  "K.attributes"   the operator's attributes as a JSON object (those not named have their defaults)
  tensors   "K.input.I"      the inputs (f64; i64 or u8 for indices and conditions)
            "K.output"       the operator's first result
            "K.cotangent"    what the result's gradient is seeded with (only if any gradient is there)
            "K.grad.I"       the gradient of input I, for floating inputs
and metadata "operator", "torch", "cases".
"""
import dataclasses
import importlib
import json
import pathlib
import sys
import zlib
from typing import Callable, Optional

import torch
from safetensors.torch import save

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass
class Case:
    operator: str
    inputs: list  # of tensors
    function: Callable  # of the inputs, in PyTorch
    attributes: dict = dataclasses.field(default_factory=dict)
    gradient: bool = True
    cotangent: Optional[torch.Tensor] = None  # default: standard normal


def generator(name: str) -> torch.Generator:
    """A generator of its own for each name, the same at every run."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def tensors_of(case: Case, index: int) -> dict:
    inputs = [x.detach().clone() for x in case.inputs]
    floating = [x.is_floating_point() and case.gradient for x in inputs]
    for x, wanted in zip(inputs, floating):
        x.requires_grad_(wanted)
    output = case.function(*inputs)
    result = {f"{index}.input.{i}": x.detach() for i, x in enumerate(inputs)}
    result[f"{index}.output"] = output.detach().to(torch.uint8) if output.dtype == torch.bool else output.detach()
    if any(floating) and output.requires_grad:
        cotangent = case.cotangent
        if cotangent is None:
            cotangent = torch.randn(output.shape, dtype=output.dtype, generator=generator(f"{case.operator} {index}"))
        output.backward(cotangent)
        result[f"{index}.cotangent"] = cotangent
        for i, x in enumerate(inputs):
            if floating[i]:
                result[f"{index}.grad.{i}"] = x.grad if x.grad is not None else torch.zeros_like(x)
    return {name: tensor.detach().contiguous().clone() for name, tensor in result.items()}


def with_sorted_metadata(file: bytes) -> bytes:
    """The same file with its metadata in order: safetensors writes them in another order at every run."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + file[8 + length :]


def write(operator: str, cases: list) -> None:
    tensors, metadata = {}, {"operator": operator, "torch": torch.__version__, "cases": str(len(cases))}
    for index, case in enumerate(cases):
        tensors.update(tensors_of(case, index))
        metadata[f"{index}.attributes"] = json.dumps(case.attributes)
    folder = HERE / "operators"
    folder.mkdir(exist_ok=True)
    (folder / f"{operator}.safetensors").write_bytes(with_sorted_metadata(save(tensors, metadata)))
    print(f"{operator}: {len(cases)} cases")


def main() -> None:
    sys.path.insert(0, str(HERE))
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    families = sys.argv[1:] or sorted(path.stem for path in (HERE / "cases").glob("*.py"))
    for family in families:
        by_operator: dict = {}
        for case in importlib.import_module(f"cases.{family}").cases():
            by_operator.setdefault(case.operator, []).append(case)
        for operator, cases in by_operator.items():
            write(operator, cases)


if __name__ == "__main__":
    sys.modules["make_cases"] = sys.modules["__main__"]
    main()
