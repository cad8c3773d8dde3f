"""pytorch_round_trip.py FRIT: weights go from PyTorch to frit and back, and from frit to PyTorch and back, and both compute the same.

Skipped, saying so, where PyTorch or safetensors is not installed.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)

APPS = pathlib.Path(__file__).resolve().parents[2] / "apps"
sys.path.append(str(APPS))
from frit_pytorch import MODELS, load, make  # noqa: E402

CASES = {  # model: (configuration, input shape)
    "conv3d-instnorm-max": ({"in_channels": 2, "out_channels": 5, "clamp_max": 0.5}, (2, 2, 5, 6, 5)),
    "conv2d-groupnorm-pool": ({"in_channels": 3, "out_channels": 8, "num_groups": 4, "pool_kernel_size": 2}, (2, 3, 12, 10)),
    "convt3d-logsumexp": ({"in_channels": 2, "out_channels": 4}, (2, 2, 3, 4, 3)),
    "classifier": ({"out_channels": 16, "num_groups": 4, "image_size": [10, 12], "num_classes": 3}, (4, 1, 10, 12)),
}
frit = [str(pathlib.Path(sys.argv[1]).resolve())]
tool = [sys.executable, str(APPS / "frit_pytorch.py")]


def run(command, *arguments, code=0):
    finished = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert finished.returncode == code, f"{command} {arguments}: code {finished.returncode}\n{finished.stdout}{finished.stderr}"
    return finished.stdout + finished.stderr


def check_same_results(checkpoint, model, shape):
    """frit's output for the checkpoint is the module's."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    numpy.save("x.npy", x.numpy())
    run(frit, "infer", checkpoint, "--input", "x.npy", "--output", "y.npy", "--device", "cpu")
    with torch.no_grad():
        expected = model(x).numpy()
    difference = numpy.abs(numpy.load("y.npy") - expected).max() / numpy.abs(expected).max()
    assert difference < 2e-5, f"{checkpoint}: {difference}"


def from_pytorch(name, config, shape):
    torch.manual_seed(0)
    model = make(name, config)
    torch.save(model.state_dict(), "there.pt")
    sizes = ",".join(map(str, shape))
    run(tool, "export", name, "there.pt", "--config", json.dumps(config), "--output", "there.safetensors", "--case", "case.safetensors",
        "--input-shape", sizes)
    print(run(frit, "verify", "case.safetensors", "--device", "cpu").splitlines()[-1])
    check_same_results("there.safetensors", model, shape)
    run(tool, "import", "there.safetensors", "--output", "back.pt")
    back = torch.load("back.pt", weights_only=True)
    for key, value in model.state_dict().items():
        assert torch.equal(back[key], value), key


def from_frit():
    """A checkpoint of a training."""
    for split, count in (("train", 32), ("t10k", 8)):
        images = numpy.random.default_rng(0).integers(0, 256, (count, 10, 12), numpy.uint8)
        pathlib.Path(f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape) + images.tobytes())
        labels = bytes(i % 3 for i in range(count))
        pathlib.Path(f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, count) + labels)
    config, shape = CASES["classifier"]
    run(frit, "train", "classifier", "--config", json.dumps(config), "--data", ".", "--epochs", "1", "--batch-size", "8", "--optimizer", "adam",
        "--save", "trained.safetensors", "--device", "cpu")
    model = load("trained.safetensors")
    check_same_results("trained.safetensors", model, shape)
    torch.save(model.state_dict(), "trained.pt")
    run(tool, "export", "classifier", "trained.pt", "--config", json.dumps(config), "--output", "again.safetensors")
    check_same_results("again.safetensors", model, shape)


def refusals():
    torch.save({"conv.weight": torch.zeros(1)}, "wrong.pt")
    text = run(tool, "export", "classifier", "wrong.pt", "--output", "wrong.safetensors", code=3)
    assert text.startswith("frit_pytorch.py: error: ") and text.count("\n") == 1 and "block.conv.weight" in text, text
    run(tool, "export", "classifier", "nothing.pt", "--output", "wrong.safetensors", code=4)
    run(tool, "import", "case.safetensors", "--output", "wrong.pt", code=3)
    run(tool, "import", "wrong.pt", "--output", "back.pt", code=3)
    assert not pathlib.Path("wrong.safetensors").exists()


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    assert set(CASES) == set(MODELS)
    for name, (config, shape) in CASES.items():
        from_pytorch(name, config, shape)
    from_frit()
    refusals()
    print(f"PyTorch {torch.__version__}, safetensors {safetensors.__version__}: both ways")
    os.chdir("/")
