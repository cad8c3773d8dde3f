#include "frit/core/communication/transport.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "frit/core/text.h"

namespace frit {

double communication_timeout() {
  static const double seconds = [] {
    const char* const given = std::getenv("FRIT_COMMUNICATION_TIMEOUT");
    if (given == nullptr || *given == '\0') return 300.0;
    char* end = nullptr;
    const double parsed = std::strtod(given, &end);
    require(*end == '\0' && parsed > 0 && parsed <= 1e8, "FRIT_COMMUNICATION_TIMEOUT: expected seconds above 0, to 1e8, got \"",
            printable(given), '"');
    return parsed;
  }();
  return seconds;
}

void throw_told(const std::string& message) {
  std::this_thread::sleep_for(std::chrono::seconds(2));
  throw ProcessLost(message, /*told=*/true);
}

std::string processes_text(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  constexpr std::size_t most = 8;
  const bool several = std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) != hosts.end();
  std::string text = ranks.size() == 1 ? "process " : "processes ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i) {
    text += concat(i == 0 ? "" : ", ", ranks[i]);
    if (several) text += concat(" (", printable(hosts[static_cast<std::size_t>(ranks[i])]), ')');
  }
  return ranks.size() > most ? concat(text, " and ", ranks.size() - most, " more") : text;
}

void Transport::find_lost(double waited, const std::function<bool()>& done) {
  if (!done()) throw ProcessLost(lost_text({}, waited));
}

void Transport::learn_hosts() {
  constexpr std::size_t length = 65;  // HOST_NAME_MAX and the end
  std::array<char, length> own{};
  (void)gethostname(own.data(), length - 1);
  std::vector<char> all(length * static_cast<std::size_t>(size()));
  all_gather(own.data(), all.data(), length);
  for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) hosts_.emplace_back(all.data() + r * length);
}

std::string Transport::lost_text(const std::vector<int>& lost, double waited) const {
  constexpr auto limit = " (FRIT_COMMUNICATION_TIMEOUT sets the seconds)";
  if (lost.empty()) {
    return concat("all processes wait for each other, process ", rank(), " for ", waited,
                  " s: they do different things, or the GPU of one hangs", limit);
  }
  const std::size_t others = static_cast<std::size_t>(size()) - lost.size();
  return concat(processes_text(lost, hosts_), " did not come within ", waited, " s to what ",
                others == 1 ? concat("process ", rank(), " waits") : concat("the other ", others, " wait"), " for", limit);
}

}  // namespace frit
