#include "frit/ops/operator/value.h"

#include <ostream>

#include "frit/ops/operator/emitter.h"

namespace frit {

std::ostream& operator<<(std::ostream& out, const TensorType& type) { return out << type.dtype << ' ' << type.shape; }

ops::Emitter& Value::emitter() const {
  require(emitter_ != nullptr, "a value was used that belongs to no graph");
  return *emitter_;
}

const TensorType& Value::type() const { return emitter().type(id_); }

}  // namespace frit
