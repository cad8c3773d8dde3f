#pragma once

#include <optional>

#include "frit/core/tensor.h"
#include "frit/models/onnx/schema.h"

namespace frit::onnx {

/// The dtype of an ONNX element type, booleans being u8; none for what frit has no tensors of.
std::optional<DType> dtype_of_element(std::int64_t element_type);
/// "float", "int8", "string": ONNX's name of an element type.
std::string element_name(std::int64_t element_type);

/// A tensor that an ONNX file holds. Throws ErrorKind::format, which names the tensor, if its data is not as long as its shape says, or its
/// element type is none of frit's. External data is read from `folder`, out of which no path may lead; empty: there is none.
Tensor read_tensor(const TensorProto& tensor, const std::string& folder);

}  // namespace frit::onnx
