"""infer.py LIBRARY CHECKPOINT INPUT OUTPUT: what infer.c does, from Python through ctypes."""

import ctypes
import math
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p


class Type(ctypes.Structure):
    _fields_ = [("dtype", c_int), ("rank", c_int32), ("sizes", c_int64 * 8)]


library, checkpoint, input_path, output_path = sys.argv[1:]
frit = ctypes.CDLL(library)
frit.frit_last_error.restype = c_char_p
frit.frit_model_load.argtypes = [c_char_p, c_char_p, c_char_p, POINTER(c_void_p)]
frit.frit_model_output.argtypes = [c_void_p, POINTER(c_int64), c_int32, POINTER(Type)]
frit.frit_model_run.argtypes = [c_void_p, c_char_p, POINTER(c_int64), c_int32, c_char_p, c_size_t]
frit.frit_model_free.argtypes = [c_void_p]


def check(status):
    if status != 0:
        sys.exit(f"status {status}: {frit.frit_last_error().decode()}")


model, sizes, output = c_void_p(), (c_int64 * 4)(2, 8, 10, 11), Type()
assert frit.frit_model_load(b"nothing.safetensors", None, None, byref(model)) == 4 and b"nothing.safetensors" in frit.frit_last_error()
check(frit.frit_model_load(checkpoint.encode(), b"cpu", None, byref(model)))
check(frit.frit_model_output(model, sizes, 4, byref(output)))
result = ctypes.create_string_buffer(4 * math.prod(output.sizes[: output.rank]))
check(frit.frit_model_run(model, open(input_path, "rb").read(), sizes, 4, result, len(result)))
frit.frit_model_free(model)
same = result.raw == open(output_path, "rb").read()
print(f"from Python: {len(result)} bytes, {'equal' if same else 'DIFFERENT'}")
sys.exit(0 if same else 1)
