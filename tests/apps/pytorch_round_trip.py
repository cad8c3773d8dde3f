"""pytorch_round_trip.py FRIT: weights, and the normalisation of the input, go from PyTorch to frit and back, and from frit to PyTorch and back,
and both compute the same.

Skipped, saying so, where PyTorch or safetensors is not installed.
"""

import importlib.util
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
from frit_pytorch import MODELS, load, make, with_normalization  # noqa: E402

CASES = {  # model: (configuration, input shape, normalisation of the input)
    "conv3d-instnorm-max": ({"in_channels": 2, "out_channels": 5, "clamp_max": 0.5}, (2, 2, 5, 6, 5), {"subtract": [700, -0.1], "divide": [300, 3]}),
    "conv2d-groupnorm-pool": ({"in_channels": 3, "out_channels": 8, "num_groups": 4, "pool_kernel_size": 2}, (2, 3, 12, 10), None),
    "convt3d-logsumexp": ({"in_channels": 2, "out_channels": 4}, (2, 2, 3, 4, 3), {"subtract": [0.1, 0.2], "divide": [0.3, 7]}),
    "classifier": ({"out_channels": 16, "num_groups": 4, "image_size": [10, 12], "num_classes": 3}, (4, 1, 10, 12), None),
    "resnet": ({"blocks": [1, 1, 1, 1], "bottleneck": False, "num_classes": 5}, (4, 3, 64, 64), None),
    "mobilenet_v2": ({"blocks": [1, 2], "width": 0.5, "num_classes": 5}, (4, 3, 32, 40), None),
    "convnext_tiny": ({"blocks": [1, 2], "width": 8, "num_classes": 5}, (4, 3, 32, 40), {"subtract": [3, -1, 0], "divide": [2, 0.5, 1]}),
    "unet2d": ({"channels": [8, 16], "base": 8, "image_size": [8, 12]}, (2, 3, 8, 12), None),
    "unet3d": ({"channels": [4, 6, 8], "in_channels": 2}, (1, 2, 8, 12, 16), {"subtract": [3, -1], "divide": [2, 0.5]}),
}
if importlib.util.find_spec("torchvision") is None:
    for name in ("resnet", "mobilenet_v2", "convnext_tiny"):
        del CASES[name], MODELS[name]
frit = [str(pathlib.Path(sys.argv[1]).resolve())]
tool = [sys.executable, str(APPS / "frit_pytorch.py")]


def run(command, *arguments, code=0):
    finished = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert finished.returncode == code, f"{command} {arguments}: code {finished.returncode}\n{finished.stdout}{finished.stderr}"
    return finished.stdout + finished.stderr


def difference(checkpoint, model, shape):
    """How far frit's output for the checkpoint is from the module's."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    for channel, (shift, scale) in enumerate(zip(*getattr(model, "frit_normalization", {"subtract": [], "divide": []}).values())):
        x[:, channel] = x[:, channel] * scale + shift
    numpy.save("x.npy", x.numpy())
    run(frit, "infer", checkpoint, "--input", "x.npy", "--output", "y.npy", "--device", "cpu")
    with torch.no_grad():
        expected = model(x).numpy()
    return numpy.abs(numpy.load("y.npy") - expected).max() / numpy.abs(expected).max()


def check_same_results(checkpoint, model, shape):
    found = difference(checkpoint, model, shape)
    assert found < 2e-5, f"{checkpoint}: {found}"


def metadata(checkpoint):
    with safetensors.safe_open(checkpoint, "numpy") as file:
        return file.metadata()


def verify(case):
    print(run(frit, "verify", case, "--device", "cpu").splitlines()[-1])


def from_pytorch(name, config, shape, normalization):
    torch.manual_seed(0)
    model = make(name, config).eval()  # so that a batch norm's statistics stay what they are
    torch.save(model.state_dict(), "there.pt")
    options = ["--config", json.dumps(config), "--case", "case.safetensors", "--input-shape", ",".join(map(str, shape))]
    if normalization:
        with_normalization(model, normalization)
        options += ["--normalization", json.dumps(normalization)]
    run(tool, "export", name, "there.pt", "--output", "there.safetensors", *options)
    assert ("normalization" in metadata("there.safetensors")) == bool(normalization)
    verify("case.safetensors")
    check_same_results("there.safetensors", model, shape)
    said = run(tool, "import", "there.safetensors", "--output", "back.pt")
    assert ("(x - subtract) / divide" in said) == bool(normalization), said
    back = torch.load("back.pt", weights_only=True)
    assert list(back) == list(model.state_dict())
    for key, value in model.state_dict().items():
        assert torch.equal(back[key], value), key
    # The configuration and the normalisation are noted in the file.
    run(tool, "export", name, "back.pt", "--output", "again.safetensors")
    assert metadata("again.safetensors") == metadata("there.safetensors")


def write_images():
    for split, count in (("train", 32), ("t10k", 8)):
        images = numpy.random.default_rng(0).integers(100, 200, (count, 10, 12), numpy.uint8)
        pathlib.Path(f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape) + images.tobytes())
        labels = bytes(i % 3 for i in range(count))
        pathlib.Path(f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, count) + labels)


def from_frit(normalize):
    """A checkpoint of a training."""
    config, shape, _ = CASES["classifier"]
    run(frit, "train", "classifier", "--model-config", json.dumps(config), "--data", ".", "--epochs", "1", "--batch-size", "8", "--optimizer", "adam",
        "--normalize", normalize, "--save", "trained.safetensors", "--device", "cpu")
    model = load("trained.safetensors")
    check_same_results("trained.safetensors", model, shape)
    torch.save(model.state_dict(), "trained.pt")
    arguments = ["export", "classifier", "trained.pt", "--config", json.dumps(config), "--output", "again.safetensors"]
    if normalize == "none":
        run(tool, *arguments)
        return check_same_results("again.safetensors", model, shape)

    # What import says is what the weights need in PyTorch, and what export takes for weights that were saved there.
    said = run(tool, "import", "trained.safetensors", "--output", "imported.pt")
    normalization = said.split("--normalization '")[1].split("'")[0]
    assert json.loads(normalization) == json.loads(metadata("trained.safetensors")["normalization"])
    plain = make("classifier", config)
    plain.load_state_dict(torch.load("imported.pt", weights_only=True))
    (subtract,), (divide,) = (json.loads(normalization)[key] for key in ("subtract", "divide"))
    check_same_results("trained.safetensors", lambda x: plain((x - subtract) / divide), shape)
    run(tool, *arguments, "--normalization", normalization)
    check_same_results("again.safetensors", model, shape)

    # It stays with what was imported, unless it is not wanted.
    arguments[2] = "imported.pt"
    said = run(tool, *arguments, "--case", "case.safetensors", "--input-shape", ",".join(map(str, shape)))
    assert normalization in said, said
    verify("case.safetensors")
    check_same_results("again.safetensors", model, shape)
    run(tool, *arguments, "--normalization", "none")
    check_same_results("again.safetensors", plain, shape)
    assert difference("again.safetensors", model, shape) > 0.1


def refusals():
    torch.save({"conv.weight": torch.zeros(1)}, "wrong.pt")
    text = run(tool, "export", "classifier", "wrong.pt", "--output", "wrong.safetensors", code=3)
    assert text.startswith("frit_pytorch.py: error: ") and text.count("\n") == 1 and "block.conv.weight" in text, text
    run(tool, "export", "classifier", "nothing.pt", "--output", "wrong.safetensors", code=4)
    torch.save(torch.zeros(1), "tensor.pt")
    run(tool, "export", "classifier", "tensor.pt", "--output", "wrong.safetensors", code=3)
    config = CASES["classifier"][0]
    text = run(tool, "export", "classifier", "trained.pt", "--config", json.dumps(config), "--output", "wrong.safetensors", "--normalization",
               '{"subtract": [0, 0], "divide": [1, 1]}', code=3)
    assert "the model takes 1 channels" in text, text
    for wrong in (3, None, {"subtract": [0]}, {"subtract": ["x"], "divide": [1]}, {"subtract": [0], "divide": [0]},
                  {"subtract": [float("nan")], "divide": [1]}):
        try:
            with_normalization(make("classifier", config), wrong)
        except ValueError:
            continue
        assert False, f"{wrong} was taken"
    run(tool, "import", "case.safetensors", "--output", "wrong.pt", code=3)
    run(tool, "import", "wrong.pt", "--output", "back.pt", code=3)
    assert not pathlib.Path("wrong.safetensors").exists()


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    assert set(CASES) == set(MODELS)
    for name, case in CASES.items():
        from_pytorch(name, *case)
    write_images()
    for normalize in ("none", "mean-std"):
        from_frit(normalize)
    refusals()
    print(f"PyTorch {torch.__version__}, safetensors {safetensors.__version__}: both ways")
    os.chdir("/")
