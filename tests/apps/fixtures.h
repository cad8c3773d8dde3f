#pragma once

// Small models and data for the tests of the program.

#include <filesystem>
#include <fstream>
#include <string>

#include "frit/core/io/npy.h"
#include "frit/core/random.h"
#include "frit/models/checkpoint.h"

namespace frit {

/// A model of which a checkpoint has a few hundred bytes; inputs (N,3,H,W).
inline Model tiny_model() {
  return make_model("conv2d-groupnorm-pool", R"({"in_channels": 3, "out_channels": 4, "num_groups": 2, "pool_kernel_size": 2})");
}

inline TensorMap tiny_parameters(DType dtype = DType::f32) {
  Graph graph;
  const Model model = tiny_model();
  model.add_to(Scope(graph, "", dtype), model.small_input);
  State state(Device::cpu(), /*seed=*/1);
  state.prepare(graph);
  TensorMap tensors;
  for (const auto& [name, tensor] : state.tensors()) tensors.emplace(name, tensor);
  return tensors;
}

inline Tensor random_tensor(const Shape& shape, DType dtype = DType::f32) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  fill_normal(tensor, 0, 1, /*seed=*/3, /*stream=*/0);
  return tensor;
}

/// An IDX file of bytes.
inline std::string idx_bytes(const Shape& shape, const std::string& bytes) {
  std::string file = {0, 0, 8, static_cast<char>(shape.rank())};
  for (const std::int64_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(static_cast<unsigned char>(size >> shift));
  }
  return file + bytes;
}

/// The configuration of a classifier for the images below.
inline constexpr const char* tiny_classifier = R"({"image_size": [8, 8], "num_classes": 4, "out_channels": 4, "num_groups": 2})";

/// Images of 8x8 bytes whose class is the bright quarter.
struct QuarterImages {
  std::string images, labels;

  QuarterImages(std::int64_t count, std::uint64_t seed) {
    std::string pixels, classes;
    for (std::int64_t n = 0; n < count; ++n) {
      const auto quarter = static_cast<int>(philox(seed, 0, static_cast<std::uint64_t>(n))[0] % 4);
      classes += static_cast<char>(quarter);
      for (int i = 0; i < 64; ++i) {
        const bool bright = i / 32 == quarter / 2 && i % 8 / 4 == quarter % 2;
        const std::uint32_t noise = philox(seed, static_cast<std::uint64_t>(n) + 1, static_cast<std::uint64_t>(i))[0] % 100;
        pixels += static_cast<char>(static_cast<unsigned char>(noise + (bright ? 120 : 20)));
      }
    }
    images = idx_bytes({count, 8, 8}, pixels);
    labels = idx_bytes({count}, classes);
  }
  /// As "train" or "t10k", the files of a dataset.
  void write(const std::filesystem::path& folder, const std::string& split) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / (split + "-images-idx3-ubyte"), std::ios::binary) << images;
    std::ofstream(folder / (split + "-labels-idx1-ubyte"), std::ios::binary) << labels;
  }
};

}  // namespace frit
