#pragma once

// What follows a convolution in a graph of cuDNN's: its bias and its epilogue, as pointwise operations one after the other. For the files
// cudnn*.cpp alone.

#include <optional>

#include "frit/ops/libraries/cuda/cudnn_graph.h"

namespace frit::cudnn {

/// What a graph computes of an earlier result: 0 is the convolution's, i that of the node before node i.
struct PointwiseNode {
  cudnnPointwiseMode_t mode;
  std::size_t x;
  std::optional<std::size_t> factor = {};    ///< a further result
  std::optional<std::int64_t> operand = {};  ///< a tensor, by its id
  ops::Activation settings = {};
};

/// The bias and the epilogue, as far as they are fused.
std::vector<PointwiseNode> pointwise_nodes(const ConvolutionKey& key, Fused fused);

/// Of the operation, computed in this dtype.
Descriptor pointwise_descriptor(const PointwiseNode& node, DType computed);

/// Whether some of the nodes read the constants.
bool reads_constants(const ops::ConvolutionEpilogue& epilogue);

/// ", epilogue: residual, rectifier 0 inf 0, multiply channels, number subtract": where the operand's kind comes first, so does the
/// operand.
std::string epilogue_text(const ops::ConvolutionEpilogue& epilogue);

}  // namespace frit::cudnn
