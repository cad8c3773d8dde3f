#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "frit/core/io/byte_order.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/io/safetensors_checksums.h"
#include "fuzz/mutators.h"

namespace frit::fuzzing {
namespace {

constexpr const char* numbers[] = {
    "0",     "1",       "2",          "3",          "7",          "16",    "1000",    "65536",
    "-1",    "-2",      "2147483647", "2147483648", "4294967296", "1e300", "1e-300",  "0.5",
    "1e999", "100000",  "null",       "true",       "[]",         "[1]",   "[0,0]",   "9223372036854775807",
    "{}",    "\"inf\"", "\"nan\"",    "\"f16\"",    "\"\"",       "[-1]",  "[1,2,3]", "-9223372036854775808"};

/// Draws what to change, and changes it.
class Changes {
 public:
  Changes(unsigned seed, MutateBytes mutate) : random_(seed + 1), mutate_(mutate) {}

  std::size_t below(std::size_t count) { return random_() / 16 % std::max<std::size_t>(count, 1); }

  std::string bytes(const std::string& before, std::size_t most) {
    std::string room = before;
    room.resize(std::max(most, before.size()));
    room.resize(mutate_(reinterpret_cast<std::uint8_t*>(room.data()), before.size(), room.size()));
    return room;
  }

  void change(TensorMap& tensors, Metadata& metadata) {
    if (below(2) == 0 && !metadata.empty()) return change(metadata);
    if (tensors.empty()) return;
    const auto chosen = std::next(tensors.begin(), static_cast<std::ptrdiff_t>(below(tensors.size())));
    switch (below(8)) {
      case 0: chosen->second = Tensor::zeros(other_shape(chosen->second.shape()), chosen->second.dtype()); break;
      case 1: chosen->second = chosen->second.to(all_dtypes[below(std::size(all_dtypes))]); break;
      case 2: tensors[ascii(bytes(chosen->first, chosen->first.size() + 8))] = chosen->second; break;
      case 3: std::next(tensors.begin(), static_cast<std::ptrdiff_t>(below(tensors.size())))->second = chosen->second; break;
      case 4: tensors.erase(chosen); break;
      default: change_values(chosen->second);
    }
  }

 private:
  void change(Metadata& metadata) {
    const auto chosen = std::next(metadata.begin(), static_cast<std::ptrdiff_t>(below(metadata.size())));
    if ((chosen->first == "operator" || chosen->first == "model") && below(32) != 0) return;  // another name is an unknown one
    if (below(32) == 0) {
      metadata.erase(chosen);
    } else if (below(8) == 0) {
      chosen->second = ascii(bytes(chosen->second, chosen->second.size() + 32));
    } else {
      change_number(chosen->second);
    }
  }

  /// A value of a JSON object becomes another.
  void change_number(std::string& json) {
    std::vector<std::size_t> colons;
    for (std::size_t i = 0; i < json.size(); ++i) {
      if (json[i] == ':') colons.push_back(i);
    }
    if (colons.empty()) return;
    const std::size_t begin = colons[below(colons.size())] + 1, end = std::min(json.find_first_of(",}", begin), json.size());
    json.replace(begin, end - begin, below(2) == 0 ? std::to_string(below(9)) : numbers[below(std::size(numbers))]);
  }

  Shape other_shape(Shape shape) {
    constexpr std::int64_t most_elements = 1024;
    if (below(4) == 0 && shape.rank() < Dims::max_rank)
      shape.insert(static_cast<int>(below(static_cast<std::size_t>(shape.rank()) + 1)), 1);
    if (shape.empty()) return shape;
    const auto axis = static_cast<int>(below(static_cast<std::size_t>(shape.rank())));
    if (below(4) == 0)
      shape.erase(axis);
    else
      shape[axis] = below(4) == 0 ? static_cast<std::int64_t>(below(20))
                                  : std::max<std::int64_t>(0, shape[axis] - 1 + static_cast<std::int64_t>(below(3)));
    return element_count(shape) <= most_elements ? shape : Shape{1};
  }

  void change_values(Tensor& tensor) {
    constexpr double values[] = {0,
                                 1,
                                 -1,
                                 2,
                                 100'000,
                                 -100'000,
                                 2147483647,
                                 1e38,
                                 -1e300,
                                 1e-310,
                                 65504,
                                 255,
                                 std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
    if (tensor.elements() == 0) return;
    tensor = tensor.clone();
    if (below(2) == 0) {
      const std::string before(static_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes()));
      std::string after = bytes(before, before.size());
      after.resize(before.size());
      std::copy(after.begin(), after.end(), static_cast<char*>(tensor.raw()));
      return;
    }
    double value = values[below(std::size(values))];
    if (!is_floating(tensor.dtype())) value = std::isfinite(value) && std::abs(value) < 2147483648.0 ? value : 5;
    const auto element = static_cast<std::int64_t>(below(static_cast<std::size_t>(tensor.elements())));
    tensor.reshape({tensor.elements()}).slice(0, element, element + 1).fill(value);
  }

  static std::string ascii(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) > 126; }, '?');
    return text;
  }

  std::minstd_rand random_;
  MutateBytes mutate_;
};

std::string text_of(const std::vector<std::byte>& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string mutate_file(const std::string& bytes, std::size_t most, Changes& changes) {
  if (changes.below(16) != 0) {
    try {
      const TensorFile file = parse_safetensors(std::as_bytes(std::span(bytes)), "before");
      TensorMap tensors = file.tensors();
      Metadata metadata = file.metadata();
      for (std::size_t count = 1 + changes.below(3); count > 0; --count) changes.change(tensors, metadata);
      if (metadata.contains("checksums") && changes.below(16) != 0) add_checksums(tensors, metadata);
      return text_of(serialize_safetensors(tensors, metadata));
    } catch (const Error&) {
      // Not a good file: its bytes are changed.
    }
  }
  return changes.bytes(bytes, most);
}

}  // namespace

std::string mutate_safetensors(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate) {
  Changes changes(seed, mutate);
  return mutate_file(bytes, most, changes);
}

std::string mutate_two_safetensors(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate) {
  Changes changes(seed, mutate);
  auto [first, second] = two_files(bytes);
  std::string& chosen = changes.below(3) == 0 ? second : first;
  chosen = mutate_file(chosen, most, changes);
  std::string result;
  for (int shift = 0; shift < 64; shift += 8) result += static_cast<char>(first.size() >> shift);
  return result + first + second;
}

std::pair<std::string, std::string> two_files(const std::string& bytes) {
  constexpr std::size_t begin = 8;
  if (bytes.size() < begin) return {bytes, {}};
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(little_endian(bytes.substr(0, begin)), bytes.size() - begin));
  return {bytes.substr(begin, length), bytes.substr(begin + length)};
}

}  // namespace frit::fuzzing
