#include "frit/graph/pipeline.h"

#include <vector>

#include "frit/graph/passes/groups.h"

namespace frit::graph {

std::span<const Pass> forward_pipeline() {
  static constexpr Pass passes[] = {
      {"dead code", remove_dead_code},
      {"common subexpressions", share_common_subexpressions},
      {"constant folding", fold_constants},
      {"fusion", fuse},
      {"unit axes", compute_with_unit_axes},
      {"channel affines", fold_channel_affines},
      {"absorption", absorb},
      {"averages", [](const Graph& graph) { return average_early(graph); }},
  };
  return passes;
}

namespace {

template <DeviceKind device>
std::vector<Pass> cleanup_passes() {
  constexpr bool on_cpu = device == DeviceKind::cpu;
  std::vector<Pass> passes = {
      {"constant folding", fold_constants},
      {"neutral operands", drop_neutral_operands},
      {"common subexpressions", share_common_subexpressions},
      {"given results", take_given_results},
      {"dead code", remove_dead_code},
      // A CPU, whose loops over parts of pixels are shorter, gains nothing.
      {"nested joins", [](const Graph& graph) { return on_cpu ? graph : nest_joins(graph); }},
      {"along channels", compute_along_channels},
      {"channel affines", prepare_channel_affines},
      {"absorption", absorb},
      {"virtual expansions", read_through_expansions},
      {"pointwise results", [](const Graph& graph) { return spell_pointwise_results(graph, /*for_chains=*/!on_cpu); }},
      {"chains", [](const Graph& graph) { return grow_chains(graph, device); }},
      {"joining", [](const Graph& graph) { return join_elementwise(graph, device); }},
  };
  if (!on_cpu) passes.push_back({"statistics", join_norms});
  return passes;
}

}  // namespace

std::span<const Pass> cleanup_pipeline(DeviceKind device) {
  static const std::vector<Pass> on_cpu = cleanup_passes<DeviceKind::cpu>(), on_gpu = cleanup_passes<DeviceKind::cuda>();
  return device == DeviceKind::cpu ? on_cpu : on_gpu;
}

Graph apply(std::span<const Pass> passes, Graph graph) {
  for (const Pass& pass : passes) {
    graph = pass.run(graph);
    verify(graph);
  }
  return graph;
}

}  // namespace frit::graph
