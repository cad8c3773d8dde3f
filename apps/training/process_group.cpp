#include "apps/training/process_group.h"

#include <algorithm>
#include <csignal>

#include "apps/common/interrupt.h"
#include "apps/common/process.h"
#include "frit/core/io/json.h"

namespace frit::apps {

int ProcessGroup::run(const std::function<int()>& body) const {
  if (!communicator_) return body();
  try {
    return body();
  } catch (const ErrorOfAll& error) {
    if (is_first()) print_error(error.what());
    communicator_->barrier();  // a launcher ends all as soon as one has ended
    throw ErrorTold{error.kind()};
  } catch (const ProcessLost&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.kind(), concat("process ", rank(), ": ", error.what()));
  }
}

void ProcessGroup::together(const std::function<void()>& body) const {
  if (!communicator_) return body();
  std::string own;
  try {
    body();
  } catch (const ErrorOfAll&) {
    throw;
  } catch (const Error& error) {
    own = static_cast<char>('0' + static_cast<int>(error.kind())) + std::string(error.what());
  }
  const std::vector<std::string> errors = communicator_->all_gather(own);
  const auto failed = std::find_if(errors.begin(), errors.end(), [](const std::string& error) { return !error.empty(); });
  if (failed == errors.end()) return;
  const std::string who =
      std::count(errors.begin(), errors.end(), *failed) == size() ? "" : concat("process ", failed - errors.begin(), ": ");
  throw ErrorOfAll(static_cast<ErrorKind>((*failed)[0] - '0'), who + failed->substr(1));
}

void ProcessGroup::alike(const std::function<void()>& body) const {
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::device) throw;  // of the connection
    throw ErrorOfAll(error.kind(), error.what());
  }
}

void ProcessGroup::require_same(const std::string& what, const std::string& own) const {
  if (communicator_) alike([&] { communicator_->require_same(what, own); });
}

void ProcessGroup::require_same_entries(const std::string& prefix, const std::string& json) const {
  const auto object = nlohmann::ordered_json::parse(json);
  for (const auto& [name, value] : object.items()) {
    require_same(prefix + name, value.is_null() ? "none" : value.is_string() ? value.get<std::string>() : value.dump());
  }
}

std::string ProcessGroup::of_first(const std::string& own) const { return of_all(own)[0]; }

std::vector<std::string> ProcessGroup::of_all(const std::string& own) const {
  return communicator_ ? communicator_->all_gather(own) : std::vector{own};
}

std::vector<double> ProcessGroup::sum(const std::vector<double>& own) const { return communicator_ ? communicator_->sum(own) : own; }

int SharedInterrupt::signal(bool final) {
  constexpr double seconds_between = 0.2, most_calls = 1000;
  const int own = interrupt_signal();
  if (group_.size() == 1) return own;
  if (agreed_ != 0 || (++calls_ < calls_until_next_ && !final)) return agreed_;
  // When to ask next is told by the first: the others' clocks differ.
  const std::chrono::duration<double> passed = Clock::now() - last_;
  const double rate = static_cast<double>(calls_) / std::max(passed.count(), 1e-9);
  const double calls = group_.is_first() ? std::clamp(rate * seconds_between, 1.0, most_calls) : 0;
  const std::vector<double> told = group_.sum({own == SIGINT ? 1.0 : 0.0, own == SIGTERM ? 1.0 : 0.0, calls});
  agreed_ = told[1] > 0 ? SIGTERM : told[0] > 0 ? SIGINT : 0;
  if (agreed_ != 0) adopt_interrupt(agreed_);
  calls_until_next_ = static_cast<std::int64_t>(told[2]);
  calls_ = 0;
  last_ = Clock::now();
  return agreed_;
}

}  // namespace frit::apps
