"""Writes networks, most of them torchvision's, as PyTorch exports them, without their weights, and what PyTorch computes with a formula's.

usage: python3 make_onnx_networks.py [NAME ..]  (needs torch, torchvision, onnx, onnxscript, safetensors; writes onnx/networks/NAME.onnx
                                                 and .safetensors next to this file, or all)

Weights and input are formula.py's numbers for their names, cast to float32. A .onnx file has the graph, whose weights are there by name and
shape alone. A .safetensors file has "input_shape", "output", in float64, of the network in eval mode, and for some "losses": of 20 steps of
SGD, learning rate LEARNING_RATE and momentum 0.9, on that one batch and the target that targets() gives.
"""
import logging
import pathlib
import sys
import tempfile
import warnings

import onnx
import torch
import torchvision
from formula import fill, numbers
from make_cases import with_sorted_metadata
from safetensors.torch import save
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
from frit_pytorch import make

FOLDER = pathlib.Path(__file__).resolve().parent / "onnx" / "networks"
STEPS, LEARNING_RATE = 20, 0.01


class Segmentation(nn.Module):
    """A segmentation network's output without its auxiliary one."""

    def __init__(self, name):
        super().__init__()
        self.network = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5)

    def forward(self, x):
        return self.network(x)["out"]


def classifier(name, **settings):
    return getattr(torchvision.models, name)(weights=None, num_classes=100, **settings)


def small_transformer():
    return torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128,
                                                num_classes=100)


# Exported by tracing, in training mode, in which batch norms stay what they are, or by torch.export, in eval mode.
CASES = {  # name: how to make it, whether by tracing, input's shape, whether it is trained too
    "resnet18": (lambda: classifier("resnet18"), True, (4, 3, 40, 40), True),
    "resnext50_32x4d": (lambda: classifier("resnext50_32x4d"), True, (2, 3, 40, 48), False),
    "mobilenet_v2": (lambda: classifier("mobilenet_v2"), False, (2, 3, 40, 48), False),
    "mobilenet_v3_small": (lambda: classifier("mobilenet_v3_small"), True, (2, 3, 40, 48), False),
    "efficientnet_b0": (lambda: classifier("efficientnet_b0"), False, (2, 3, 40, 48), False),
    "densenet121": (lambda: classifier("densenet121"), True, (2, 3, 40, 48), False),
    "convnext_tiny": (lambda: classifier("convnext_tiny"), False, (2, 3, 40, 48), False),
    "regnet_x_400mf": (lambda: classifier("regnet_x_400mf"), True, (2, 3, 40, 48), False),
    "regnet_y_400mf": (lambda: classifier("regnet_y_400mf"), False, (2, 3, 40, 48), False),
    "shufflenet_v2_x0_5": (lambda: classifier("shufflenet_v2_x0_5"), True, (2, 3, 40, 48), False),
    "squeezenet1_1": (lambda: classifier("squeezenet1_1"), True, (2, 3, 40, 48), False),
    "mnasnet0_5": (lambda: classifier("mnasnet0_5"), False, (2, 3, 40, 48), False),
    "googlenet": (lambda: classifier("googlenet", init_weights=False, aux_logits=False), True, (2, 3, 40, 48), False),
    "vision_transformer": (small_transformer, False, (2, 3, 32, 32), False),
    "fcn_resnet50": (lambda: Segmentation("fcn_resnet50"), True, (1, 3, 32, 40), False),
    "deeplabv3_mobilenet_v3_large": (lambda: Segmentation("deeplabv3_mobilenet_v3_large"), False, (2, 3, 32, 40), False),
    "lraspp_mobilenet_v3_large": (lambda: Segmentation("lraspp_mobilenet_v3_large"), True, (2, 3, 32, 40), False),
    "unet3d": (lambda: make("unet3d", dict(channels=[4, 8, 16], in_channels=2)), True, (2, 2, 12, 8, 8), True),
}


def exported(network, x, by_tracing):
    """The ONNX model, for any batch."""
    names = dict(input_names=["input"], output_names=["output"])
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        if by_tracing:
            torch.onnx.export(network, x, file.name, dynamo=False, opset_version=17, training=torch.onnx.TrainingMode.TRAINING,
                              do_constant_folding=False, dynamic_axes={"input": {0: "n"}, "output": {0: "n"}}, **names)
        else:
            torch.onnx.export(network.eval(), (x,), file.name, dynamo=True, optimize=False, external_data=False, verbose=False,
                              dynamic_shapes=({0: torch.export.Dim("n")},), **names)
        return onnx.load(file.name)


def stripped(model, weights):
    """The graph alone, its inner values under short names. What is neither a weight nor small is a mistake."""
    graph = model.graph
    names = {value.name: value.name for value in [*graph.input, *graph.output, *graph.initializer]}
    for tensor in graph.initializer:
        if tensor.name in weights and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.ClearField("raw_data")
        assert tensor.ByteSize() < 1000, f"{tensor.name} has {tensor.ByteSize()} bytes"
    for node in graph.node:
        for field in ("name", "doc_string", "metadata_props"):
            node.ClearField(field)
        for values in (node.input, node.output):
            values[:] = [names.setdefault(value, str(len(names))) if value else "" for value in values]
    for field in ("value_info", "metadata_props", "doc_string"):
        graph.ClearField(field)
    for field in ("metadata_props", "functions", "doc_string"):
        model.ClearField(field)
    return model.SerializeToString()


def targets(output):
    """Classes from the output's shape: of image n its pixel p is of class (n + p) % 3."""
    n, pixels = output.shape[0], output[0, 0].numel()
    return ((torch.arange(n)[:, None] + torch.arange(pixels)) % 3).reshape(output[:, 0].shape)


def losses(network, x):
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=0.9)
    result = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = network(x)
        loss = nn.functional.cross_entropy(output, targets(output))
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return torch.tensor(result, dtype=torch.float64)


def case(name):
    build, by_tracing, shape, trained = CASES[name]
    # float32 numbers, so that an ONNX file's are the same.
    network, x = fill(build().float()), numbers("input", shape).float()
    graph = stripped(exported(network, x, by_tracing), network.state_dict())
    network, x = fill(network).double(), x.double()  # tracing has updated running statistics
    with torch.no_grad():
        tensors = {"input_shape": torch.tensor(shape), "output": network.eval()(x)}
    if trained:
        tensors["losses"] = losses(network.train(), x)
    metadata = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    return graph, with_sorted_metadata(save({n: t.contiguous() for n, t in tensors.items()}, metadata))


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        graph, results = case(name)
        (FOLDER / f"{name}.onnx").write_bytes(graph)
        (FOLDER / f"{name}.safetensors").write_bytes(results)
        print(f"{name}: {len(graph)} and {len(results)} bytes", flush=True)


if __name__ == "__main__":
    main()
