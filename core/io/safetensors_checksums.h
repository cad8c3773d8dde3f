#pragma once

#include "frit/core/io/safetensors.h"

namespace frit {

/// Adds checksums to what write_safetensors is to be given: "checksums", a JSON object with one a tensor, of its name, dtype, shape and
/// bytes, and "checksum", of all the other metadata (see core/io/checksum.h). A file with them is a plain safetensors file for others. The
/// tensors must be contiguous and on the CPU.
void add_checksums(const TensorMap& tensors, Metadata& metadata);

/// Whether the file has checksums; throws ErrorKind::format if they do not fit what it holds, naming the tensor. Any change of a single
/// bit is found.
bool verify_checksums(const TensorFile& file);

}  // namespace frit
