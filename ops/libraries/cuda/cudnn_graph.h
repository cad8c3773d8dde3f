#pragma once

// A convolution as a graph of cuDNN's, and the ways of computing it that cuDNN offers. For the files cudnn*.cpp alone.

#include <functional>

#include "frit/ops/libraries/cuda/cudnn.h"
#include "frit/ops/libraries/cuda/cudnn_descriptor.h"
#include "frit/ops/libraries/library_plans.h"

namespace frit::cudnn {

/// Of the tensors of a key's graph; a three-dimensional convolution whose depth is 1 everywhere is a two-dimensional one.
struct ConvolutionShapes {
  Shape input, weight, output, bias;

  explicit ConvolutionShapes(const ConvolutionKey& key);
  int image_rank() const { return input.rank() - 2; }
};

/// Names of the tensors within a graph: the convolution's, constants, the epilogue's operands, and what lies between.
enum TensorId : std::int64_t {
  input_id = 1,
  weight_id,
  output_id,
  bias_id,
  three_id,
  sixth_id,
  first_other_id,
  first_inner_id = first_other_id + ops::most_epilogue_operands
};

/// What a graph computes besides the convolution.
struct Fused {
  bool bias = false, epilogue = false;
};

/// Whether there may be graphs with the key's epilogue: not in float64, and in float32 that is not TF32 only if it is exact.
bool fuses_epilogue(const ConvolutionKey& key);
/// Of an operand of the epilogue.
Shape operand_shape(const ConvolutionKey& key, std::size_t operand);

/// One of cuDNN's engines with its settings.
struct Configuration {
  ops::LibraryPlan plan;  ///< engine, knobs and what is fused
  Descriptor descriptor;
};

/// Visits what cuDNN offers for the key and what computes as exactly, and as repeatably, as the key asks, the one first that cuDNN thinks
/// the fastest, until the visitor returns false.
void for_each_configuration(const ConvolutionKey& key, Fused fused, cudnnHandle_t handle, const std::function<bool(Configuration)>& visit);

/// Whether the engine's kernel is compiled when a plan is built, which takes a good part of a second.
bool is_compiled_when_built(const Configuration& configuration);

/// All that a plan's speed depends on: what it is kept under in the plan cache.
std::string problem_text(const ConvolutionKey& key);

}  // namespace frit::cudnn
