#include "frit/core/strided_map.h"

#include <array>
#include <cstddef>
#include <optional>

#include "frit/core/strided_copy.h"

namespace frit {
namespace {

/// Elements that are copied at a time of operands that do not lie side by side in the output's order.
constexpr std::int64_t copied_elements = 2048;
/// Rows of fewer are copied together: each row of a map has a beginning and an end.
constexpr std::int64_t least_width = 32;

/// The body for unsigned numbers of so many bytes: copies need not know more of a dtype.
template <class Body>
void with_word(std::size_t bytes, const Body& body) {
  switch (bytes) {
    case 1: return body(std::uint8_t{});
    case 2: return body(std::uint16_t{});
    case 4: return body(std::uint32_t{});
    default: return body(std::uint64_t{});
  }
}

/// A tensor in the order in which elements are gone through.
struct OrderedOperand {
  std::size_t size;  // of an element
  std::byte* data;
  bool repeated, dense;
  std::optional<StridedElements> elements;  // where it is neither
  std::int64_t width = 0, row_step = 0;     // of rows whose elements lie side by side, if it is not 0

  OrderedOperand(const Tensor& tensor, const Shape& shape, Layout order)
      : size(size_of(tensor.dtype())), data(static_cast<std::byte*>(tensor.raw())), repeated(tensor.elements() == 1) {
    dense = !repeated && tensor.shape() == shape && tensor.is_contiguous(order);
    if (dense || repeated) return;
    elements.emplace(tensor.expand(shape), order);
    dense = elements->dense(), repeated = elements->repeated();
    if (elements->shape.rank() == 2 && elements->strides[0][1] == 1) width = elements->shape[1], row_step = elements->strides[0][0];
  }

  std::byte* at(std::int64_t element) const { return data + static_cast<std::size_t>(element) * size; }
  void gather(std::int64_t begin, std::int64_t end, std::byte* memory) const {
    with_word(size, [&]<class Word>(Word) {
      const Word* const from = reinterpret_cast<const Word*>(data);
      if (repeated) {
        std::fill_n(reinterpret_cast<Word*>(memory), end - begin, *from);
      } else {
        elements->gather(from, begin, end, reinterpret_cast<Word*>(memory));
      }
    });
  }
  void scatter(std::int64_t begin, std::int64_t end, const std::byte* memory) const {
    with_word(size, [&]<class Word>(Word) {
      elements->scatter(reinterpret_cast<Word*>(data), begin, end, reinterpret_cast<const Word*>(memory));
    });
  }
};

/// The width of rows in which the elements of all operands lie side by side, of some in a larger tensor or the same in every row; 0 if
/// there are no such rows.
std::int64_t common_width(std::span<const std::optional<OrderedOperand>> sources) {
  std::int64_t width = 0;
  for (const auto& source : sources) {
    if (source->dense) continue;
    if (source->repeated || source->width < least_width || (width != 0 && source->width != width)) return 0;
    width = source->width;
  }
  return width;
}

/// Elements [begin, end), none of which are copied.
void map_in_rows(std::int64_t width, const OrderedOperand& target, std::span<const std::optional<OrderedOperand>> sources,
                 std::int64_t begin, std::int64_t end, const ElementFunction& function) {
  while (begin < end) {
    const std::int64_t row = begin / width, column = begin % width;
    MapRows rows{.rows = 1, .length = std::min(width - column, end - begin), .output_step = width};
    if (rows.length == width) rows.rows = (end - begin) / width;
    const void* read[most_map_operands] = {};
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const OrderedOperand& source = *sources[i];
      read[i] = source.at(source.dense ? begin : row * source.row_step + column);
      rows.steps[i] = source.dense ? width : source.row_step;
    }
    function(target.at(begin), read, rows);
    begin += rows.rows * rows.length;
  }
}

}  // namespace

void strided_map(const Tensor& output, std::span<const Tensor> operands, const ElementFunction& function) {
  FRIT_CHECK(operands.size() <= most_map_operands);
  if (output.elements() == 0) return;
  const auto inner_channels = [](const Tensor& tensor) { return has_inner_channels(tensor); };
  const bool channels_last = inner_channels(output) || std::any_of(operands.begin(), operands.end(), inner_channels);
  const Layout order = channels_last ? Layout::channels_last : Layout::contiguous;
  const OrderedOperand target(output, output.shape(), order);
  FRIT_CHECK(!target.repeated || output.elements() == 1);  // each element has a place of its own
  const bool writes_in_place = target.dense || target.repeated;
  std::array<std::optional<OrderedOperand>, most_map_operands> sources;
  bool plain = writes_in_place;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    sources[i].emplace(operands[i], output.shape(), order);
    plain = plain && sources[i]->dense;
  }
  const std::span<const std::optional<OrderedOperand>> given(sources.data(), operands.size());
  const std::int64_t width = writes_in_place ? common_width(given) : 0;
  parallel_for(output.elements(), elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
    if (width > 0) return map_in_rows(width, target, given, begin, end, function);
    alignas(64) std::byte memory[most_map_operands + 1][copied_elements * sizeof(std::uint64_t)];
    const std::int64_t step = plain ? end - begin : copied_elements;
    for (std::int64_t first = begin; first < end; first += step) {
      const std::int64_t last = std::min(first + step, end);
      const void* read[most_map_operands] = {};
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const OrderedOperand& source = *sources[i];
        read[i] = source.dense ? source.at(first) : memory[i];
        // A repeated element stays in its memory from step to step; the run never writes there.
        if (!source.dense && (!source.repeated || first == begin)) source.gather(first, last, memory[i]);
      }
      std::byte* const results = writes_in_place ? target.at(first) : memory[most_map_operands];
      function(results, read, {.rows = 1, .length = last - first});
      if (!writes_in_place) target.scatter(first, last, results);
    }
  });
}

}  // namespace frit
