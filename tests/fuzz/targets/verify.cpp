#include "frit/models/training/verify.h"

#include "frit/core/random.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/sample.h"
#include "fuzz/fuzzing.h"

namespace frit {
namespace {

/// The call by itself, with memory of its own for each tensor.
void run_call(const TensorFile& file) {
  const auto name = file.metadata().find("operator"), attributes = file.metadata().find("0.attributes");
  if (name == file.metadata().end() || attributes == file.metadata().end()) return;
  const ops::Operator& op = ops::registry().find(name->second);
  std::vector<Tensor> inputs;
  while (const auto index = file.find(concat("0.input.", inputs.size()))) inputs.push_back(file.tensor(*index).clone());
  ops::run(op, inputs, op.attributes_from_json(attributes->second));
}

/// A case of one of the samples that operators have of themselves, in float64.
std::string any_case(unsigned seed) {
  const auto draw = [seed](std::uint64_t what, std::size_t count) { return philox(seed, what, 0)[0] % count; };
  const std::vector<const ops::Operator*> all = ops::registry().all();
  const ops::Operator& op = *all[draw(0, all.size())];
  const std::vector<ops::Sample> samples = op.samples();
  const ops::Sample& sample = samples[draw(1, samples.size())];
  const std::vector<Tensor> inputs = ops::sample_tensors(sample, DType::f64, seed);
  TensorMap tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) tensors[concat("0.input.", i)] = inputs[i].clone();
  const std::vector<Tensor> outputs = ops::run(op, inputs, sample.attributes);
  tensors["0.output"] = outputs.empty() ? Tensor::zeros({1}) : outputs[0];
  if (op.gradient && is_floating(inputs[0].dtype())) {
    tensors["0.cotangent"] = outputs[0];
    tensors["0.grad.0"] = inputs[0];
  }
  const auto bytes = serialize_safetensors(tensors, {{"operator", op.name}, {"0.attributes", sample.attributes.json()}});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string mutate_case(const std::string& bytes, std::size_t most, unsigned seed, fuzzing::MutateBytes mutate) {
  return seed % 64 == 0 ? any_case(seed / 64) : fuzzing::mutate_safetensors(bytes, most, seed, mutate);
}

}  // namespace

FRIT_FUZZ_TARGET(verify, mutate_case) {
  const TensorFile file = parse_safetensors(std::as_bytes(std::span(bytes)), "input");
  if (const auto losses = file.find("losses"); losses && element_count(file.entry(*losses).shape) > 4) return;  // a step each
  try {
    run_call(file);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
  }
  verify_case(file, DType::f64);
}

}  // namespace frit
