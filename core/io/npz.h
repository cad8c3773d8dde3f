#pragma once

#include <string>

#include "frit/core/io/safetensors.h"

namespace frit {

/// The arrays of a NumPy .npz file (a zip of .npy files, stored or deflated; read through libzip), by their names without .npy. Throws
/// ErrorKind::format for what is damaged, encrypted or compressed otherwise, or if frit was built without libzip; ErrorKind::file_system.
TensorMap read_npz(const std::string& path);
TensorMap read_npz(const Input& input);
/// Whether the input begins as a zip file does.
bool is_zip(const Input& input);

}  // namespace frit
