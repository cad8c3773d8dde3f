#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "frit/core/io/file.h"

namespace frit {

/// What an input holds, front to back, decompressed on the way if it is a gzip file.
class Content {
 public:
  virtual ~Content() = default;

  /// Fills `into` from the front; returns how many bytes there were.
  virtual std::size_t read(std::span<std::byte> into) = 0;
  /// The most bytes that there can be, so that a header's claims are refused before memory is taken for them.
  virtual std::uint64_t limit() const = 0;
  /// Throws ErrorKind::format unless everything has been read.
  virtual void finish() = 0;
};

/// The most bytes that deflate makes of one.
inline constexpr std::uint64_t deflate_limit = 1032;

bool is_gzip(const Input& input);

/// `input` outlives the content.
std::unique_ptr<Content> open_content(const Input& input);

}  // namespace frit
