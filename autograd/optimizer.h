#pragma once

#include <functional>
#include <map>
#include <string>

#include "frit/graph/graph.h"
#include "frit/ops/optimizer/optimizer_ops.h"

namespace frit {

/// Where an optimizer emits one parameter's update.
struct UpdateSite {
  Graph& graph;
  std::string name;  ///< of the parameter
  Value parameter;
  Value gradient;
  Value rate;            ///< f64 scalar variable
  Value step;            ///< i64 scalar variable: updates done so far
  Value gradient_scale;  ///< scalar that the gradient is to be multiplied by; where it is negative, nothing may change
  std::string prefix = "optimizer.";
  /// With several processes: what is to be updated, and what the gradient is of, as a vector; see Optimizer::takes_parts.
  ops::UpdatedPart part = {};
  /// With several processes: where `buffer` notes the name of each variable that it makes, and the shape it has of a whole parameter.
  std::map<std::string, Shape>* buffers = nullptr;

  /// A variable of the type of what is updated that starts as zeros, "<prefix><parameter>.<suffix>". What else an update keeps, of the
  /// graph's own variables, is the same in all processes.
  Value buffer(const std::string& suffix) const;
};

/// What a training step needs of an optimizer. A program's own is another such struct.
struct Optimizer {
  std::string name;
  double learning_rate;
  std::function<void(const UpdateSite&)> update;
  std::string settings = {};  ///< its numbers but for the rate, "momentum=0.9 ...": what a training that goes on must have again
  bool takes_parts = false;   ///< `update` heeds UpdateSite::part, as no update can that needs the whole parameter
};

/// Of parameters that are updated otherwise than the rest: biases without weight decay, a pretrained part more slowly.
struct ParameterGroup {
  std::string names = "*";  ///< see matches_pattern
  int least_rank = 0, most_rank = Dims::max_rank;
  /// The schedule moves its learning rate in proportion to that of the step's own optimizer.
  Optimizer optimizer;
};

/// Stands where people write `.lr = 1e-3`, for the compiler to say what that is called.
struct CalledLearningRate {
  CalledLearningRate() = default;
  template <class Rate>
  CalledLearningRate(Rate) {  // NOLINT
    static_assert(sizeof(Rate) == 0, "PyTorch's lr is called learning_rate; settings are given by their names");
  }
};

/// torch.optim.SGD.
struct Sgd {
  double learning_rate = 1e-2;
  CalledLearningRate lr = {};
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;

  operator Optimizer() const;  // NOLINT: meant to convert
};

/// torch.optim.Adam.
struct Adam {
  double learning_rate = 1e-3;
  CalledLearningRate lr = {};
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;

  operator Optimizer() const;  // NOLINT
};

/// torch.optim.AdamW.
struct AdamW {
  double learning_rate = 1e-3;
  CalledLearningRate lr = {};
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;

  operator Optimizer() const;  // NOLINT
};

}  // namespace frit
