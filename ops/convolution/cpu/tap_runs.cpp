#include "frit/ops/convolution/cpu/tap_runs.h"

#include <algorithm>

namespace frit::ops {
namespace {

std::vector<Tap> taps_of(const Taps& axes, const Window& window, const ImageStrides& weight) {
  std::vector<Tap> taps = {{0, 0}};
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<Tap> more;
    for (const Tap& tap : taps) {
      for (std::int64_t k = 0; k < axes[i].count; ++k) {
        const std::int64_t t = axes[i].tap_offset < 0 ? axes[i].count - 1 - k : k;
        more.push_back({tap.offset + (axes[i].offset + t * axes[i].tap_offset - window.reach.low[i]) * window.axis[i],
                        tap.weight + (axes[i].first_tap + t * axes[i].tap_step) * weight.axis[i]});
      }
    }
    taps = std::move(more);
  }
  return taps;
}

}  // namespace

TapRuns::TapRuns(const Taps& axes, const Window& window, const ImageStrides& weight, std::int64_t most_depth, std::int64_t step)
    : TapRuns(taps_of(axes, window, weight), window.channels, most_depth, step) {}

TapRuns::TapRuns(std::vector<Tap> in_order, std::int64_t channels, std::int64_t most_depth, std::int64_t step)
    : taps(std::move(in_order)), depth(static_cast<std::int64_t>(taps.size()) * channels) {
  const std::int64_t size = step == 1 ? EvenBlocks(depth, most_depth).size : most_depth;
  chunks.push_back({});
  std::int64_t room = size, filled_up = 0;  // of the last chunk, and of its last run
  for (const Tap& tap : taps) {
    for (std::int64_t done = 0, length; done < channels; done += length) {
      const std::int64_t offset = tap.offset + done;
      bool goes_on = chunks.back().runs > 0 && runs.back().offset + runs.back().length == offset;
      if (room + (goes_on ? filled_up : 0) == 0) {
        chunks.push_back({.first_run = runs.size(), .begin = chunks.back().begin + chunks.back().length, .packed_begin = packed_depth});
        room = size, goes_on = false;
      }
      if (!goes_on) {
        runs.push_back({offset, 0});
        ++chunks.back().runs;
        filled_up = 0;
      }
      length = std::min(room + filled_up, channels - done);
      const std::int64_t more = (std::max<std::int64_t>(0, length - filled_up) + step - 1) / step * step;
      runs.back().length += length, chunks.back().length += length;
      chunks.back().packed_length += more, packed_depth += more;
      filled_up += more - length, room -= more;
    }
  }
}

}  // namespace frit::ops
