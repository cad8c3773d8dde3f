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

TapRuns::TapRuns(const Taps& axes, const Window& window, const ImageStrides& weight, std::int64_t most_depth)
    : TapRuns(taps_of(axes, window, weight), window.channels, most_depth) {}

TapRuns::TapRuns(std::vector<Tap> in_order, std::int64_t channels, std::int64_t most_depth)
    : taps(std::move(in_order)), depth(static_cast<std::int64_t>(taps.size()) * channels) {
  const std::int64_t size = EvenBlocks(depth, most_depth).size;
  chunks.push_back({});
  for (const Tap& tap : taps) {
    for (std::int64_t done = 0, length; done < channels; done += length) {
      if (chunks.back().length == size) chunks.push_back({runs.size(), 0, chunks.back().begin + size, 0});
      Chunk& chunk = chunks.back();
      length = std::min(size - chunk.length, channels - done);
      const std::int64_t offset = tap.offset + done;
      if (chunk.runs > 0 && runs.back().offset + runs.back().length == offset) {
        runs.back().length += length;
      } else {
        runs.push_back({offset, length});
        ++chunk.runs;
      }
      chunk.length += length;
    }
  }
}

}  // namespace frit::ops
