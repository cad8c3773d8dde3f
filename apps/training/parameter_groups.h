#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frit/core/shape.h"

namespace frit::apps {

/// Parameters with settings of their own, as --groups names them.
struct GroupSettings {
  std::string names = "*";  ///< see matches_pattern
  int least_rank = 0, most_rank = Dims::max_rank;
  std::optional<double> rate, weight_decay;  ///< those of all parameters unless given
};

/// Of "rank=0-1 weight-decay=0; names=head.* lr=0.01". Throws ErrorKind::argument, naming --groups, for what is no such text.
std::vector<GroupSettings> parse_groups(const std::string& text);

}  // namespace frit::apps
