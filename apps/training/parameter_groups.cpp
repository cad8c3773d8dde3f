#include "apps/training/parameter_groups.h"

#include <algorithm>
#include <array>

#include "apps/common/options.h"
#include "apps/common/text.h"
#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

double parse_setting(const std::string& key, const std::string& value) {
  constexpr double most = 1e6;
  const std::optional<double> number = parse_number<double>(value);
  require(number && *number >= 0 && *number <= most, "--groups: ", key, ": expected a number from 0 to ", most, ", got \"",
          printable(value), '"');
  return *number;
}

/// "1", or "0-1".
void parse_ranks(const std::string& value, GroupSettings& group) {
  const std::size_t dash = value.find('-');
  const auto least = parse_number<int>(std::string_view(value).substr(0, dash));
  const auto most = dash == std::string::npos ? least : parse_number<int>(std::string_view(value).substr(dash + 1));
  require(least && most && *least >= 0 && *least <= *most && *most <= Dims::max_rank, "--groups: rank: expected a number from 0 to ",
          Dims::max_rank, " or two, such as 0-1, got \"", printable(value), '"');
  group.least_rank = *least;
  group.most_rank = *most;
}

void parse_word(const std::string& word, GroupSettings& group) {
  static const std::array<std::string, 4> keys = {"names", "rank", "lr", "weight-decay"};
  const std::size_t equals = word.find('=');
  const std::string key = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
  const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
  require(known, "--groups: expected names=, rank=, lr= or weight-decay=, got \"", printable(word), '"', did_you_mean(key, keys));
  require(!value.empty(), "--groups: ", key, ": the value is empty");
  if (key == "names") group.names = value;
  if (key == "rank") parse_ranks(value, group);
  if (key == "lr") group.rate = parse_setting(key, value);
  if (key == "weight-decay") group.weight_decay = parse_setting(key, value);
}

}  // namespace

std::vector<GroupSettings> parse_groups(const std::string& text) {
  std::vector<GroupSettings> groups;
  for (const std::string& part : split(text, ';')) {
    const std::vector<std::string> words = split(part, ' ');
    if (words.empty()) continue;
    GroupSettings& group = groups.emplace_back();
    for (const std::string& word : words) parse_word(word, group);
    require(group.rate || group.weight_decay, "--groups: \"", printable(part), "\" has no lr= or weight-decay= of its own");
  }
  return groups;
}

}  // namespace frit::apps
