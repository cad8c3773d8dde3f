#pragma once

#include "frit/autograd/train_step.h"

// The graphs that a TrainStep runs, and what they call what it keeps.

namespace frit::training {

inline constexpr const char* loss_name = "loss";
inline constexpr const char* mean_loss_name = "mean_loss";  // over processes
inline constexpr const char* norm_name = "gradient_norm";

// What a step keeps besides the parameters, after its prefix.
inline constexpr const char* rate_name = "rate";
inline constexpr const char* step_name = "step";
inline constexpr const char* failures_name = "failures";
inline constexpr const char* averaged_name = "averaged";  // how many updates the averages have seen

/// "optimizer.", with the step's name if it has one.
std::string kept_name(const TrainOptions& options, const std::string& what);
std::string average_name(const TrainOptions& options, const std::string& parameter);
/// Of the parameter's place for the sum of gradients.
std::string accumulated_name(const TrainOptions& options, const std::string& parameter);

struct Parameter {
  std::string name;
  TensorType type;
};

/// The trainable variables that the loss depends on, by numbers that can change a little.
std::vector<Parameter> trained(const Graph& graph);
bool fits(const ParameterGroup& group, const Parameter& parameter);

/// Whether each process updates a part of every parameter, and keeps what the optimizer does of that part.
bool shards(const TrainOptions& options);

/// Appends the gradient and the updates, or where gradients are to be summed up, the sums.
void append_training(Graph& graph, const Optimizer& optimizer, const TrainOptions& options);
/// The updates by the sums of gradients, which are reset. For `buffers` see UpdateSite.
Graph update_graph(const Graph& forward, const Optimizer& optimizer, const TrainOptions& options,
                   std::map<std::string, Shape>* buffers = nullptr);
/// The averages after an update, if there was one: a step may be skipped.
Graph average_graph(const Graph& forward, const TrainOptions& options);

}  // namespace frit::training
