#pragma once

#include <map>
#include <string>

#include "apps/common/model_graph.h"
#include "frit/core/data/loader.h"
#include "frit/graph/executable.h"

namespace frit::apps {

/// Shapes and dtypes of a batch, by field.
using BatchTypes = std::map<std::string, TensorType>;
BatchTypes batch_types(const Dataset& data, std::int64_t batch_size);

/// The model's loss on such a batch, computed in `dtype`, in an empty graph that lasts as long as the argument; its inputs are the batch's
/// fields, its output "output". Throws ErrorKind::argument or ErrorKind::format, naming the fields, for a batch that does not fit the
/// model.
Value build_loss(Graph& graph, const Model& model, const BatchTypes& batch, DType dtype, const LossOptions& options = {});

/// Likewise a graph with the loss as another output, "loss".
Graph loss_graph(const Model& model, const BatchTypes& batch, DType dtype, const LossOptions& options = {});

/// Throws ErrorKind::argument, naming --ignore-index, unless "output" is a segmentation. The number then counts for nothing in
/// all segmentations of the model.
void check_ignorable(const Model& model);

/// A batch in the dtypes of that graph; the tensors themselves where they have them. Throws ErrorKind::argument for classes that are no
/// whole numbers.
Bindings batch_inputs(const Model& model, const Batch& batch, DType dtype);

}  // namespace frit::apps
