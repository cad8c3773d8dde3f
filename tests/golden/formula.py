"""The numbers that golden cases take for weights and inputs, so that no file has to hold them. tests/models/formula.h has the same."""
import math

import numpy
import torch


def numbers(name, shape):
    """Uniform in [-1, 1), by a hash of the name and the element's number."""
    seed = sum((i + 1) * ord(c) for i, c in enumerate(name))
    x = (numpy.arange(math.prod(shape), dtype=numpy.uint64) + numpy.uint64(seed * 1000003)) * numpy.uint64(2654435761) % 2**32
    x ^= x >> numpy.uint64(16)
    x = x * numpy.uint64(2246822519) % 2**32
    x ^= x >> numpy.uint64(13)
    return torch.from_numpy(x.astype(numpy.float64) / 2**31 - 1).reshape(shape)


def initial(name, shape):
    """Of a parameter or running statistic: weights by their fan-in, scales and variances from 0.5 to 1.5, the rest near 0."""
    v = numbers(name, shape)
    if len(shape) > 1:
        return v * math.sqrt(6 / math.prod(shape[1:]))
    return 1 + 0.5 * v if name.endswith(("weight", "running_var")) else 0.1 * v


def fill(module):
    """Gives all of a module's floating parameters and buffers these numbers."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(initial(name, tuple(tensor.shape)))
    return module
