"""Writes networks that PyTorch exports as ONNX, and what it computes with them: the output at inference, and the losses of a training.

usage: python3 make_onnx.py        (needs torch, onnx, safetensors; writes onnx/*.onnx and onnx/*.safetensors next to this file)

A .safetensors file has, in float64: "input", "target" (i64 for classes), "output" of the network before training, in eval mode, and
"losses" of 20 steps of SGD, learning rate 0.05 and momentum 0.9, on that one batch.
"""
import pathlib
import warnings

import torch
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).parent
STEPS = 20


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.skip(x))


class ResNet(nn.Module):
    """ResNet-18's layers at a small width."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(BasicBlock(4, 4, 1), BasicBlock(4, 8, 2))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


def conv_block(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv3d(inputs, outputs, 3, stride, 1), nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01))


class UNet3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = conv_block(1, 3)
        self.down = conv_block(3, 5, 2)
        self.up = nn.ConvTranspose3d(5, 3, 2, 2)
        self.last = nn.Sequential(conv_block(6, 3), nn.Conv3d(3, 2, 1))

    def forward(self, x):
        first = self.first(x)
        return self.last(torch.cat([self.up(self.down(first)), first], 1))


class Functions(nn.Module):
    """What ONNX had no operator for in opset 17, and PReLU."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.SiLU())
        self.second = nn.Sequential(nn.Conv2d(6, 4, 3), nn.InstanceNorm2d(4), nn.PReLU(4))
        self.last = nn.Sequential(nn.GroupNorm(2, 4, affine=False), nn.Mish(), nn.Conv2d(4, 2, 1))

    def forward(self, x):
        x = self.second(self.first(x))
        return self.last(x * nn.functional.hardsigmoid(x))


def write(name, network, x, target, loss_of):
    # In training mode batch norms stay operators of their own. The run that is recorded updates their statistics, here and in the file.
    path = HERE / "onnx" / f"{name}.onnx"
    torch.onnx.export(network, x, path, opset_version=17, dynamo=False, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, input_names=["input"], output_names=["output"],
                      dynamic_axes={"input": {0: "n"}, "output": {0: "n"}})
    network, x = network.double(), x.double()
    with torch.no_grad():
        output = network.eval()(x)
    network.train()
    target = target if target.dtype == torch.int64 else target.double()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(network(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tensors = {"input": x, "target": target, "output": output, "losses": torch.tensor(losses, dtype=torch.float64)}
    save_file(tensors, HERE / "onnx" / f"{name}.safetensors")


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    write("resnet", ResNet(), torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 1]), nn.functional.cross_entropy)
    write("unet3d", UNet3d(), torch.randn(2, 1, 8, 6, 4), torch.randn(2, 2, 8, 6, 4), nn.functional.mse_loss)
    write("functions", Functions(), torch.randn(3, 2, 9, 8), torch.randn(3, 2, 5, 4), nn.functional.mse_loss)


if __name__ == "__main__":
    main()
