#include "apps/common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "apps/common/text.h"
#include "frit/core/error.h"

namespace frit::apps {
namespace {

constexpr auto bar_interval = std::chrono::milliseconds(100);
constexpr auto line_interval = std::chrono::seconds(1);
constexpr std::int64_t bar_cells = 20;

std::size_t terminal_width() {
  struct winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::string label, std::string unit, std::int64_t count, std::int64_t total, std::int64_t before, bool quiet)
    : label_(std::move(label)), unit_(std::move(unit)), count_(count), total_(total), before_(before) {
  style_ = quiet ? Style::none : isatty(STDERR_FILENO) == 1 ? Style::bar : Style::lines;
}

Progress::~Progress() {
  if (visible_) std::cerr << "\r\x1b[K" << std::flush;
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::update(std::int64_t done, const std::string& remark) {
  const Clock::time_point now = Clock::now();
  const std::int64_t tenth = done * 10 / std::max<std::int64_t>(count_, 1);
  const bool due = style_ == Style::bar ? now - drawn_ >= bar_interval
                                        : style_ == Style::lines && tenth > tenth_ && done < count_ && now - drawn_ >= line_interval;
  if (!due) return;
  drawn_ = now;
  tenth_ = tenth;
  draw(done, remark);
}

void Progress::draw(std::int64_t done, const std::string& remark) {
  const double rate = static_cast<double>(done) / std::max(seconds(), 1e-9);
  const double left = static_cast<double>(total_ - before_ - done) / std::max(rate, 1e-9);
  const std::int64_t percent = done * 100 / std::max<std::int64_t>(count_, 1), cells = percent * bar_cells / 100;
  const std::string bar =
      '[' + std::string(static_cast<std::size_t>(cells), '#') + std::string(static_cast<std::size_t>(bar_cells - cells), '.') + "] ";
  std::string line = concat(label_, "  ", style_ == Style::bar ? bar : "", percent, " %  ", fixed(rate, rate < 100 ? 1 : 0), ' ', unit_,
                            "/s  ", remark, "  ", duration_text(left), " left");
  if (style_ == Style::lines) {
    std::cerr << line << std::endl;
    return;
  }
  line.resize(std::min(line.size(), terminal_width() - 1));
  std::cerr << '\r' << line << "\x1b[K" << std::flush;
  visible_ = true;
}

}  // namespace frit::apps
