#pragma once

#include <optional>

#include "frit/core/communication/communicator.h"
#include "frit/core/data/dataset.h"
#include "frit/models/model.h"

namespace frit::apps {

inline constexpr const char* output_name = "output";

/// Shapes and dtypes of a batch.
struct BatchTypes {
  TensorType input, target;

  static BatchTypes of(const Dataset& data, std::int64_t batch_size);
};

/// The model's loss on such a batch, computed in `dtype`, in an empty graph that lasts as long as the argument; its inputs are "input" and
/// "target", its output "output". Targets of `ignore_index` count for nothing; where all do, the loss is 0. With a communicator, which may
/// be null, the targets of all its processes are counted, so that the mean of their losses is that of all. Throws ErrorKind::argument for a
/// batch that does not fit the model.
Value build_loss(Graph& graph, const Model& model, const BatchTypes& batch, DType dtype, std::optional<std::int64_t> ignore_index = {},
                 const Communicator* communicator = nullptr);

/// Throws ErrorKind::argument, naming --ignore-index, unless the model is a segmentation.
void check_ignorable(const Model& model);

/// A batch in the dtypes of that graph; the tensors themselves where they have them. Throws ErrorKind::argument for classes that are no
/// whole numbers.
std::map<std::string, Tensor> batch_inputs(const Model& model, const Tensor& input, const Tensor& target, DType dtype);

/// What a program is compiled for, for such inputs.
std::map<std::string, TensorType> types_of(const std::map<std::string, Tensor>& inputs);

}  // namespace frit::apps
