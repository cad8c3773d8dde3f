// Dinitz's algorithm: flow along shortest paths until none has capacity left.

#include "frit/graph/minimum_cut.h"

#include <algorithm>

#include "frit/graph/index.h"

namespace frit::graph {

int MinimumCut::add_vertex() {
  leaving_.emplace_back();
  return static_cast<int>(leaving_.size()) - 1;
}

void MinimumCut::add_edge(int from, int to, std::int64_t capacity, std::int64_t backward) {
  leaving_[index(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  leaving_[index(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, backward});
}

bool MinimumCut::find_levels() {
  level_.assign(leaving_.size(), -1);
  level_[source] = 0;
  std::vector<int> reached = {source};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const int e : leaving_[index(reached[i])]) {
      const Edge& edge = edges_[index(e)];
      if (edge.capacity == 0 || level_[index(edge.to)] >= 0) continue;
      level_[index(edge.to)] = level_[index(reached[i])] + 1;
      reached.push_back(edge.to);
    }
  }
  return level_[sink] >= 0;
}

std::int64_t MinimumCut::push(int vertex, std::int64_t most) {
  if (vertex == sink) return most;
  std::int64_t pushed = 0;
  for (std::size_t& next = next_[index(vertex)]; next < leaving_[index(vertex)].size(); ++next) {
    const int e = leaving_[index(vertex)][next];
    Edge& edge = edges_[index(e)];
    if (edge.capacity == 0 || level_[index(edge.to)] != level_[index(vertex)] + 1) continue;
    const std::int64_t flow = push(edge.to, std::min(most - pushed, edge.capacity));
    edge.capacity -= flow;
    edges_[index(e ^ 1)].capacity += flow;
    pushed += flow;
    if (pushed == most) break;  // the edge may have more
  }
  return pushed;
}

std::vector<bool> MinimumCut::sink_side() {
  while (find_levels()) {
    next_.assign(leaving_.size(), 0);
    push(source, unlimited);
  }
  std::vector<bool> reaches(leaving_.size(), false);
  reaches[sink] = true;
  std::vector<int> reached = {sink};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const int e : leaving_[index(reached[i])]) {
      const int from = edges_[index(e)].to;
      if (edges_[index(e ^ 1)].capacity == 0 || reaches[index(from)]) continue;
      reaches[index(from)] = true;
      reached.push_back(from);
    }
  }
  return reaches;
}

}  // namespace frit::graph
