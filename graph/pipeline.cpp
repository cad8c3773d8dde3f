#include "frit/graph/pipeline.h"

#include "frit/graph/passes/groups.h"

namespace frit::graph {

std::span<const Pass> forward_pipeline() {
  static constexpr Pass passes[] = {
      {"dead code", remove_dead_code},           {"common subexpressions", share_common_subexpressions},
      {"constant folding", fold_constants},      {"fusion", fuse},
      {"channel affines", fold_channel_affines}, {"absorption", absorb},
  };
  return passes;
}

std::span<const Pass> cleanup_pipeline(DeviceKind device) {
  static constexpr Pass passes[] = {
      {"constant folding", fold_constants},
      {"neutral operands", drop_neutral_operands},
      {"common subexpressions", share_common_subexpressions},
      {"given results", take_given_results},
      {"dead code", remove_dead_code},
      {"absorption", absorb},
      {"virtual expansions", read_through_expansions},
      {"pointwise results", spell_pointwise_results},
      {"epilogues", grow_epilogues},
      {"chains", grow_chains},
      {"joining", join_elementwise},
  };
  static const std::vector<Pass> on_cpu = [] {
    std::vector<Pass> result(std::begin(passes), std::end(passes));
    std::erase_if(result, [](const Pass& pass) { return pass.run == grow_chains; });
    // A CPU reads a value faster than it computes an activation.
    result.back().run = [](const Graph& graph) { return join_elementwise(graph, /*rematerializes=*/false); };
    return result;
  }();
  return device == DeviceKind::cpu ? std::span<const Pass>(on_cpu) : passes;
}

Graph apply(std::span<const Pass> passes, Graph graph) {
  for (const Pass& pass : passes) {
    graph = pass.run(graph);
    verify(graph);
  }
  return graph;
}

}  // namespace frit::graph
