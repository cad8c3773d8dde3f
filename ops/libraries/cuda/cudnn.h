#pragma once

#include <compare>
#include <functional>
#include <string>
#include <vector>

#include "frit/core/tensor.h"
#include "frit/ops/libraries/convolution_epilogue.h"
#include "frit/ops/libraries/convolution_geometry.h"
#include "frit/ops/libraries/library_plans.h"

struct CUstream_st;  // what cudaStream_t points to

/// Convolutions through cuDNN, whose own types are seen in the files cudnn*.cpp alone.
namespace frit::cudnn {

/// "cuDNN 9.19.0": the library that runs.
std::string version();

enum class ConvolutionKind { forward, data_gradient, weight_gradient };

/// What a plan depends on, besides the library's version, of which a process has one. All tensors lie in `layout`, at addresses that are a
/// multiple of 16.
struct ConvolutionKey {
  ConvolutionKind kind = ConvolutionKind::forward;
  ops::ConvolutionGeometry geometry = {};
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  bool bias = false;           ///< is added to the result, an image
  ops::ConvolutionEpilogue epilogue = {};
  bool tf32 = false;           ///< as in Numerics; false for other dtypes than f32
  bool deterministic = false;  ///< as in Numerics
  bool exhaustive = false;     ///< an exhaustive search is asked for, which is not deterministic
  std::size_t workspace_limit = 0;
  int device = 0;

  friend auto operator<=>(const ConvolutionKey&, const ConvolutionKey&) = default;
};

/// "Input" and "output" are the convolution's, whatever is computed.
struct ConvolutionOperands {
  Tensor input;   // (N, C, [D,] H, W)
  Tensor weight;  // (K, C / groups, [kD,] kH, kW)
  Tensor output;  // (N, K, [D,] H, W)
  Tensor bias;    // (channels of the result), or undefined
  std::vector<Tensor> others = {};  // the epilogue's further operands, in its order

  const Tensor& result(ConvolutionKind kind) const;
};

/// A way of computing the result of a key.
struct ConvolutionPlan;

/// The work of a key's epilogue on a result that has its bias: what a plan leaves that does not do it itself.
using Finish = std::function<void(const ConvolutionOperands& operands, CUstream_st* stream)>;

/// The plan that the plan cache knows to be the fastest, or else: the fastest of all, if the key asks for an exhaustive search, which takes
/// seconds, or the first of cuDNN's ranking that works; null if cuDNN has none. A new key allocates; plans live as long as the process.
/// With `deterministic` nothing is timed or remembered: the same key has the same plan in every process. Throws ErrorKind::device where the
/// library's version is known to compute wrongly, or no plan fits the workspace limit. `finish` is kept: it must be the same for all calls
/// with this key.
const ConvolutionPlan* plan_for(const ConvolutionKey& key, const Finish& finish = {});
const ops::LibraryPlan& facts(const ConvolutionPlan& plan);
/// `workspace` is aligned to 256 bytes. Can be captured in a CUDA graph.
void execute(const ConvolutionPlan& plan, const ConvolutionOperands& operands, void* workspace, CUstream_st* stream);

}  // namespace frit::cudnn
