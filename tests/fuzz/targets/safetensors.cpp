#include "frit/core/io/safetensors.h"

#include "frit/core/io/safetensors_checksums.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(safetensors, fuzzing::mutate_safetensors) {
  const auto parse = [](std::span<const std::byte> file) { return parse_safetensors(file, "input"); };
  const TensorFile file = parse(std::as_bytes(std::span(bytes)));
  const std::vector<std::byte> written = serialize_safetensors(file.tensors(), file.metadata());
  const TensorFile again = parse(written);
  FRIT_CHECK(serialize_safetensors(again.tensors(), again.metadata()) == written);
  verify_checksums(file);
}

}  // namespace frit
