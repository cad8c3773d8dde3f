#pragma once

#include <frit/frit.h>

#include <array>

/// A picture to paint small images into, enlarged.
class Picture {
 public:
  using Colour = std::array<float, 3>;

  Picture(std::int64_t height, std::int64_t width) : pixels_(frit::Tensor::full({3, height, width}, 1)) {}

  /// Paints at(y, x), a Colour, for every y and x of an image of this size, each as `zoom` x `zoom` pixels from (top, left) on.
  template <class At>
  void paint(std::int64_t top, std::int64_t left, std::int64_t height, std::int64_t width, std::int64_t zoom, const At& at) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const Colour colour = at(y, x);
        for (std::int64_t i = 0; i < zoom * zoom; ++i) set(top + y * zoom + i / zoom, left + x * zoom + i % zoom, colour);
      }
    }
  }

  void write(const std::string& path) const { frit::write_png(path, pixels_); }

 private:
  void set(std::int64_t y, std::int64_t x, const Colour& colour) {
    const std::int64_t width = pixels_.dim(2), size = pixels_.dim(1) * width;
    for (std::int64_t c = 0; c < 3; ++c) pixels_.data<float>()[c * size + y * width + x] = colour[static_cast<std::size_t>(c)];
  }

  frit::Tensor pixels_;
};
