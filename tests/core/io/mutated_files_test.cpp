// Good files of every format, changed at random: each is read or refused, at once, whatever its bytes say.

#include <gtest/gtest.h>

#include <functional>

#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/idx.h"
#include "frit/core/io/jpeg.h"
#include "frit/core/io/nifti.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/npz.h"
#include "frit/core/io/png.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/random.h"

namespace frit {
namespace {

/// One to four changes: a bit, a byte, or a small number of two bytes at a place that is more often early, and now and then a cut.
std::string mutated(const std::string& good, std::uint64_t number) {
  std::string bytes = good;
  const auto count = philox(1, number, 0)[0] % 4 + 1;
  for (std::uint32_t change = 1; change <= count; ++change) {
    const auto draw = philox(1, number, change);
    const std::size_t reach = draw[3] % 2 == 0 ? std::min<std::size_t>(bytes.size(), 400) : bytes.size();
    if (reach == 0) break;
    const std::size_t at = draw[0] % reach;
    switch (draw[1] % 8) {
      case 0: bytes.resize(at); break;
      case 1: bytes[at] = static_cast<char>(0xff); break;
      case 2: bytes[at] = 0; break;
      case 3: bytes.insert(at, 1, static_cast<char>(draw[2])); break;
      case 4: bytes.erase(at, 1); break;
      case 5: bytes[at] = static_cast<char>(draw[2]); break;
      default: bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw[2] % 8));
    }
  }
  return bytes;
}

void expect_refused_or_read(const char* format, const std::string& good, const std::function<void(const Input&)>& read) {
  ASSERT_NO_THROW(read(MemoryInput(std::as_bytes(std::span(good)), "good"))) << format;
  const double start = processor_seconds();
  const int count = sanitized ? 1000 : 4000;
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string bytes = mutated(good, static_cast<std::uint64_t>(i));
    try {
      read(MemoryInput(std::as_bytes(std::span(bytes)), "mutated"));
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.kind(), ErrorKind::format) << format << ' ' << i << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, count / 10) << format;
  EXPECT_LT(processor_seconds() - start, sanitized ? 60 : 20) << format;
}

const Tensor two_rows = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});

TEST(MutatedFiles, ArraysAreReadOrRefused) {
  const std::string bytes("\0\0\x08\2\0\0\0\2\0\0\0\3abcdef", 18);
  expect_refused_or_read("npy", text_of(serialize_npy(two_rows)), [](const Input& input) { read_npy(input); });
  expect_refused_or_read("safetensors", text_of(serialize_safetensors({{"a", two_rows}, {"b", two_rows}}, {{"k", "v"}})),
                         [](const Input& input) { read_safetensors(input); });
  expect_refused_or_read("idx", bytes, [](const Input& input) { read_idx(input); });
  expect_refused_or_read("idx.gz", gzipped(bytes), [](const Input& input) { read_idx(input); });
}

TEST(MutatedFiles, ArchivesAreReadOrRefused) {
  FRIT_SKIP_WITHOUT("libzip");
  const std::string array = text_of(serialize_npy(two_rows));
  expect_refused_or_read("npz", zip_file({{"a.npy", array}, {"b.npy", array, true}}), [](const Input& input) { read_npz(input); });
}

TEST(MutatedFiles, VolumesAreReadOrRefused) {
  FRIT_SKIP_WITHOUT("libnifti2");
  const std::string volume = nifti_file({.dim = {3, 2, 2}, .type = 4, .bits = 16}, std::string(24, 'v'));
  expect_refused_or_read("nii", volume, [](const Input& input) { read_nifti(input); });
  expect_refused_or_read("nii.gz", gzipped(volume), [](const Input& input) { read_nifti(input); });
}

TEST(MutatedFiles, ImagesAreReadOrRefused) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  write_png(folder / "image.png", Tensor::full({3, 9, 7}, 0.5));
  expect_refused_or_read("png", content_of(folder / "image.png"), [](const Input& input) { read_png(input); });
}

TEST(MutatedFiles, JpegImagesAreReadOrRefused) {
  FRIT_SKIP_WITHOUT("libjpeg");
  for (const char* const name : {"halved", "progressive"}) {
    expect_refused_or_read(name, jpeg_file(name), [](const Input& input) { read_jpeg(input); });
  }
}

}  // namespace
}  // namespace frit
