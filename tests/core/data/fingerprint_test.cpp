#include "frit/core/data/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

namespace frit {
namespace {

std::string of_numbers(std::vector<float> numbers, const std::string& name = "x") {
  const auto size = std::ssize(numbers);
  return fingerprint(TensorDataset({{name, Tensor::from(numbers, {size})}}));
}

TEST(Fingerprint, IsOfEveryByteAndOfTheFields) {
  const std::string usual = of_numbers({1, 2, 3});
  EXPECT_EQ(usual, of_numbers({1, 2, 3}));
  const TensorDataset halves({{"x", Tensor::from<float>({1, 2, 3}, {3}).to(DType::f16)}}),
      column({{"x", Tensor::from<float>({1, 2, 3}, {3, 1})}});
  const std::set<std::string> all = {usual,          of_numbers({1, 2, 4}),      of_numbers({2, 1, 3}), of_numbers({1, 2, 3, 0}),
                                     of_numbers({}), of_numbers({1, 2, 3}, "y"), fingerprint(halves),   fingerprint(column)};
  EXPECT_EQ(all.size(), 8u) << "each differs";
}

/// More examples than anyone can read; notes which ones are.
class Endless final : public Dataset {
 public:
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch&) const override {
    read_.insert(read_.end(), indices.begin(), indices.end());
    batch[0].fill(1);
  }

  mutable std::vector<std::int64_t> read_;

 private:
  std::vector<Field> fields_ = {{"x", DType::f32, {100}}};
};

TEST(Fingerprint, LooksAtFewOfManyExamples) {
  const Endless data;
  fingerprint(data);
  ASSERT_EQ(data.read_.size(), 1024u);
  for (std::size_t i = 0; i < data.read_.size(); ++i) EXPECT_EQ(data.read_[i], static_cast<std::int64_t>(i) << 30) << "evenly spread";
}

}  // namespace
}  // namespace frit
