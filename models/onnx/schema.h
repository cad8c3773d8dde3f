#pragma once

// ONNX's schema as protobuf's compiler writes it, under a namespace of frit's own: a program may link the ONNX project's library too.
#include "frit_onnx_schema.pb.h"

namespace frit::onnx {

using namespace frit::onnx_schema;

}  // namespace frit::onnx
