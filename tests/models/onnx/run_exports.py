"""run_exports.py ONNX_TEST: ONNX Runtime gives of what frit exports what frit gives, within 1e-5: the native networks, and operators that
none of them has, as export_test.cpp leaves them. Then the nine networks that the Python package onnx has, where it is installed, give what it
says.

Skipped, saying so, where ONNX Runtime is not installed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)


def difference(model):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    read = lambda kind: numpy.load(model.with_name(f"{model.stem}-{kind}.npy"))
    expected, (found,) = read("output"), session.run(None, {"input": read("input")})
    assert found.shape == expected.shape and found.dtype == expected.dtype, f"{model}: {found.shape}, expected {expected.shape}"
    return abs(found - expected).max() / max(1, abs(expected).max())


with tempfile.TemporaryDirectory() as folder:
    environment = {**os.environ, "FRIT_ONNX_EXPORTS": folder}
    finished = subprocess.run([sys.argv[1], "--gtest_filter=*OnnxExport*", "--gtest_brief=1"], env=environment)
    assert finished.returncode == 0
    models = sorted(pathlib.Path(folder).glob("*.onnx"))
    differences = [difference(model) for model in models]
assert len(models) > 30, f"{len(models)} models"
assert all(d < 1e-5 for d in differences), dict(zip(models, differences))
try:
    import onnx
except ImportError as error:
    print(f"the nine networks are left out: {error}")
else:
    environment = {**os.environ, "FRIT_ONNX_TEST_DATA": str(pathlib.Path(onnx.__file__).parent / "backend/test/data")}
    finished = subprocess.run([sys.argv[1], "--gtest_filter=*OnnxRealModel*-*Cuda*", "--gtest_brief=1"], env=environment)
    assert finished.returncode == 0
print(f"ONNX Runtime {onnxruntime.__version__}: {len(models)} models, the largest difference {max(differences):.1e}")
