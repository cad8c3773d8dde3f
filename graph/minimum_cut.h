#pragma once

#include <cstdint>
#include <vector>

namespace frit::graph {

/// Vertices to be divided between a source and a sink so that the edges that lead from the source's side to the sink's have the least
/// capacity in sum.
class MinimumCut {
 public:
  static constexpr int source = 0, sink = 1;
  static constexpr std::int64_t unlimited = std::int64_t{1} << 60;  ///< an edge that is not cut; capacities that are stay far below

  int add_vertex();
  void add_edge(int from, int to, std::int64_t capacity, std::int64_t backward = 0);
  /// By vertex: whether it falls to the sink; the source gets what may be on either side.
  std::vector<bool> sink_side();

 private:
  /// At an even place an edge, after it the one that leads back.
  struct Edge {
    int to;
    std::int64_t capacity;  // what is left of it
  };

  bool find_levels();
  std::int64_t push(int vertex, std::int64_t most);

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> leaving_{2};  // by vertex: places in edges_
  std::vector<int> level_;                    // steps from the source; -1: none lead there
  std::vector<std::size_t> next_;             // by vertex: of the edges that leave it, the first that may still lead to the sink
};

}  // namespace frit::graph
