#pragma once

#include <span>

#include "frit/graph/graph.h"

namespace frit::graph {

/// A rewrite that keeps a graph's meaning.
struct Pass {
  const char* name;
  Graph (*run)(const Graph& graph);
};

Graph remove_dead_code(const Graph& graph);
Graph share_common_subexpressions(const Graph& graph);
Graph fold_constants(const Graph& graph);
/// Replaces x * 1 and the like by x.
Graph drop_neutral_operands(const Graph& graph);
/// Replaces chains of operators by the fused operator whose decomposition they are.
Graph fuse(const Graph& graph);
/// Likewise by those operators alone that are elementwise, such as an activation that is spelled out, and norms that are; dead code
/// remains.
Graph fuse_elementwise(const Graph& graph);
/// Where images (N, C, 1, L) become (N, C, L) and back, what lies between is computed on images, by the operators' `with_unit_axis` rule,
/// and the views go: layouts and chains are of images.
Graph compute_with_unit_axes(const Graph& graph);
/// A place in a graph where operators are a fused operator's decomposition, or begin to be.
struct FusionAttempt {
  const ops::Operator* op;    ///< the fused operator
  std::size_t operations;     ///< that its decomposition has
  int root;                   ///< value id of the last operation's result
  std::vector<int> matched;   ///< indices of the nodes that fit, ascending
  int blocker = -1;           ///< index of the node that stood in the way; -1: none in particular
  std::string obstacle = {};  ///< why it was not fused; empty: it was
};
/// Likewise; also lists what was fused, and for each other operation at which two operators or more fit one, the fused operator that came
/// nearest and what it lacked.
Graph fuse(const Graph& graph, std::vector<FusionAttempt>& attempts);
/// Averages over what a linear operation gives are computed from fewer products, where its `average` rule allows it. Not of results of
/// fewer bytes than these, which take no longer than the operations in their place would.
Graph average_early(const Graph& graph, std::int64_t least_bytes = 1 << 20);

/// Attention whose rows of scores are no whole vectors of 16 bytes, with which a GPU's products take several times as long, gets keys of
/// zeros, which are masked out, and values of zeros. Not of scores of fewer bytes than these.
Graph align_scores(const Graph& graph, std::int64_t least_bytes = 1 << 20);

/// Operations take over the work of those that feed them, where their operator's `absorb` rule allows it.
Graph absorb(const Graph& graph);
/// Leaves out operations whose result is another output of the operation that feeds them, by their operator's `given` rule.
Graph take_given_results(const Graph& graph);

/// What multiplies the channels of a convolution's result by numbers, or adds numbers to them, or wants them in another order, becomes part
/// of its weight and bias.
Graph fold_channel_affines(const Graph& graph);
/// Likewise where weight and bias are the same in every run, so that these products are computed once.
Graph prepare_channel_affines(const Graph& graph);
/// Operations along an image's last axis, which then becomes the second, are done along that one, by another operator's `along_channels`
/// rule, where elementwise operations follow, which it may take in; so are those before, if nothing but such operations lies between.
Graph compute_along_channels(const Graph& graph);
/// What an earlier operation has joined, others join as it is, so that a list that grows is joined in one place.
Graph nest_joins(const Graph& graph);
/// Elementwise operations, which broadcast, read what an expansion was made of.
Graph read_through_expansions(const Graph& graph);
/// Spells results that elementwise operations read in such operations too, by the operators' `pointwise` rules; `for_chains`: and those
/// that operations read which take such operations in.
Graph spell_pointwise_results(const Graph& graph, bool for_chains);

/// Stores in halves, f16 or bf16, what gains from it, and all that depends on that but for what its operator wants in float32 (see
/// ops::Precision). Inputs and variables stay as they are and are cast where they are used; outputs come as they are computed.
Graph lower_precision(const Graph& graph, DType half);

/// Operations take in, by an operator's `stage` rule, the elementwise ones that make an image that they read, where that moves fewer bytes,
/// and those that alone read their result, where the operation's kernel on such a device is to compute these.
Graph grow_chains(const Graph& graph, DeviceKind device = DeviceKind::cuda);

/// Makes one operation of connected elementwise ones, by an operator's `join` rule, so that what lies between them is neither written nor
/// read; on a GPU, values are computed again where that moves fewer bytes, and reductions are computed with what they read, by an
/// operator's `join_reduced` rule.
Graph join_elementwise(const Graph& graph, DeviceKind device = DeviceKind::cuda);

/// On a GPU, the statistics of norms that write nothing else are computed with what they are of, by a kernel's `join_norm` rule.
Graph join_norms(const Graph& graph);

/// For inference: each operator becomes what its `at_inference` rule says, and a batch norm part of the convolution before it; what only
/// training needed is gone.
Graph for_inference(const Graph& graph);
/// Variables whose names match one of the patterns (see matches_pattern) are trained no more. Throws ErrorKind::argument for a
/// pattern that matches no trainable variable.
Graph freeze(const Graph& graph, const std::vector<std::string>& patterns);
/// The graph for other input shapes, every type inferred for these. Throws ErrorKind::argument naming an input that is read and missing,
/// unknown or of the wrong dtype, or the operator that the shapes do not fit.
Graph specialize(const Graph& graph, const std::map<std::string, TensorType>& inputs);

/// What a forward graph goes through before its gradient is taken, and what the whole graph goes through after. On a CPU nothing is gained
/// from computing what could be read.
std::span<const Pass> forward_pipeline();
std::span<const Pass> cleanup_pipeline(DeviceKind device = DeviceKind::cuda);
/// Runs and verifies each pass in turn.
Graph apply(std::span<const Pass> passes, Graph graph);

}  // namespace frit::graph
