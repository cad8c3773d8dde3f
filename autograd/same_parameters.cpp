#include <algorithm>
#include <cstring>

#include "frit/autograd/train_step.h"
#include "frit/core/io/checksum.h"

namespace frit {
namespace {

std::uint64_t checksum_of(const Tensor& tensor) {
  const Tensor here = tensor.to(Device::cpu()).contiguous();
  return checksum({static_cast<const std::byte*>(here.raw()), static_cast<std::size_t>(here.bytes())});
}

/// The first process whose number is that of most.
std::size_t one_of_most(const std::vector<std::uint64_t>& numbers) {
  const auto alike = [&](std::uint64_t number) { return std::count(numbers.begin(), numbers.end(), number); };
  return static_cast<std::size_t>(std::max_element(numbers.begin(), numbers.end(), [&](auto a, auto b) { return alike(a) < alike(b); }) -
                                  numbers.begin());
}

}  // namespace

void TrainStep::require_same_parameters() const {
  if (!options_.communicator) return;
  std::vector<const std::string*> names;
  std::string own;
  for (const graph::Node* node : graph().all(graph::NodeKind::variable)) {
    if (!node->trainable) continue;
    names.push_back(&node->name);
    const std::uint64_t number = checksum_of(state().at(node->name));
    own.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  const std::vector<std::string> all = options_.communicator->all_gather(own);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::vector<std::uint64_t> numbers(all.size());
    for (std::size_t r = 0; r < all.size(); ++r) std::memcpy(&numbers[r], all[r].data() + i * sizeof(std::uint64_t), sizeof(std::uint64_t));
    const std::size_t reference = one_of_most(numbers);
    const auto other = std::find_if(numbers.begin(), numbers.end(), [&](std::uint64_t number) { return number != numbers[reference]; });
    if (other == numbers.end()) continue;
    fail(ErrorKind::diverged, "process ", other - numbers.begin(), "'s parameter \"", *names[i], "\" differs from process ", reference,
         "'s after step ", position_.batches, ": all compute the same updates, unless a device or a program is broken");
  }
}

}  // namespace frit
