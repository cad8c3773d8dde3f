"""Writes the single-node cases of the installed Python package `onnx`, which has none as files, as conformance_test.cpp reads them.

usage: python3 write_node_cases.py FOLDER      (needs onnx; then FRIT_ONNX_TEST_DATA=FOLDER names them)
"""
import pathlib
import sys

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


def write(case, folder):
    """Cases whose data are no tensors are left out: frit has no sequences."""
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir(parents=True, exist_ok=True)
        for kind, values in (("input", inputs), ("output", outputs)):
            for place, value in enumerate(values):
                if not isinstance(value, onnx.TensorProto):
                    value = numpy_helper.from_array(numpy.asarray(value))
                (data / f"{kind}_{place}.pb").write_bytes(value.SerializeToString())
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())


def main():
    written, left_out = 0, []
    for case in load_model_tests(kind="node"):
        data = [value for inputs, outputs in case.data_sets for value in (*inputs, *outputs)]
        if any(value is None or isinstance(value, (list, tuple)) for value in data):
            left_out.append(case.name)
            continue
        write(case, pathlib.Path(sys.argv[1]) / "node" / case.name)
        written += 1
    print(written, "cases;", len(left_out), "without tensors alone")


if __name__ == "__main__":
    main()
