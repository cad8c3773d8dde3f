#include <algorithm>
#include <cmath>
#include <utility>

#include "frit/core/io/json.h"
#include "frit/core/text.h"
#include "frit/models/model.h"
#include "frit/ops/elementwise/arithmetic.h"

namespace frit {
namespace {

/// One number a channel, to stand against (N, C, ...).
Value channel_constant(const Value& input, const std::vector<double>& values) {
  Shape shape = Dims::filled(input.shape().rank() - 1, 1);
  shape[0] = static_cast<std::int64_t>(values.size());
  return input.emitter().constant(Tensor::from(values, shape).to(input.dtype()));
}

}  // namespace

Model with_normalization(Model model, const InputNormalization& n) {
  const auto channels = static_cast<std::size_t>(model.in_channels);
  require(n.subtract.size() == channels && n.divide.size() == channels, "a normalisation of ", n.divide.size(), " channels, ", model.name,
          " takes ", channels);
  for (std::size_t c = 0; c < channels; ++c) {
    require(std::isfinite(n.subtract[c]) && std::isfinite(n.divide[c]) && n.divide[c] > 0, "the normalisation of channel ", c,
            " must subtract a number and divide by one above 0, got ", n.subtract[c], " and ", n.divide[c]);
  }
  model.normalization = nlohmann::json{{"subtract", n.subtract}, {"divide", n.divide}}.dump();
  model.build = [build = std::move(model.build), n](const Scope& scope, NamedValues inputs) {
    Value& image = inputs.at("input");
    image = (image - channel_constant(image, n.subtract)) / channel_constant(image, n.divide);
    return build(scope, inputs);
  };
  return model;
}

Model with_normalization(Model model, std::string_view json) {
  InputNormalization n;
  try {
    const auto object = read_json(json, "normalization");
    n = {object.at("subtract").get<std::vector<double>>(), object.at("divide").get<std::vector<double>>()};
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::format, "normalization: expected {\"subtract\": [...], \"divide\": [...]}, got \"", printable(json), '"');
  }
  try {
    return with_normalization(std::move(model), n);
  } catch (const Error& error) {
    fail(ErrorKind::format, error.what());
  }
}

}  // namespace frit
