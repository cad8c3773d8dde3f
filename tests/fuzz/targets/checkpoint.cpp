#include "frit/models/predictor.h"
#include "fuzz/fuzzing.h"

namespace frit {

/// As `frit infer` and frit_model_load take it.
FRIT_FUZZ_TARGET(checkpoint, fuzzing::mutate_safetensors) {
  constexpr std::int64_t most_elements = 1 << 14;
  Predictor predict(fuzzing::path_of(bytes), {.device = Device::cpu()});
  const Shape& input = predict.model().small_input;
  if (element_count(input) <= most_elements && element_count(predict.output_shape(input)) <= most_elements) predict(Tensor::full(input, 1));
}

}  // namespace frit
