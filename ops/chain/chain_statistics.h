#pragma once

#include "frit/ops/chain/chain_attributes.h"

namespace frit::ops {

struct ChainStatisticsAttributes {
  StagedCall call = {};          ///< of a chain, whose programs may be missing
  OperatorCall norm = {};        ///< of its output 0
  std::int64_t norm_inputs = 0;  ///< but the first: the last of all inputs

  void fields(FieldVisitor& v);

  template <class T>
  std::span<const T> inputs_of_chain(std::span<const T> inputs) const {
    return inputs.first(inputs.size() - static_cast<std::size_t>(norm_inputs));
  }
  template <class T>
  std::vector<T> inputs_of_norm(std::span<const T> inputs, const T& image) const {
    std::vector<T> result(inputs.end() - norm_inputs, inputs.end());
    result.insert(result.begin(), image);
    return result;
  }
};

/// What the two calls read and write of one of `chain_statistics`.
struct ChainAndNorm {
  const ChainStatisticsAttributes& own;
  Attributes chain_attributes;
  Tensor image;  ///< that the chain gives, whether it is wanted or not
  std::vector<Tensor> norm_inputs, norm_outputs;

  explicit ChainAndNorm(const KernelContext& context);
  /// Refers to this object.
  KernelContext chain(const KernelContext& context) const;
};

/// One after the other.
void run_statistics_in_parts(const KernelContext& context);
std::size_t scratch_of_statistics_in_parts(const InferContext& call, Device device);

/// Of the calls' kernels, but for what computes both.
Kernel chain_statistics_kernel(KernelFunction run, std::function<std::size_t(const InferContext&)> scratch, Kernel Operator::*centre);

}  // namespace frit::ops
