#include "frit/core/io/jpeg.h"

#include <gtest/gtest.h>

#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

Tensor parse_jpeg(const std::string& bytes) { return read_jpeg(MemoryInput(bytes_of(bytes), "image.jpg")); }

/// With another height and width in its header.
std::string declaring(std::string bytes, int height, int width) {
  std::string sizes;
  for (const int size : {height, width}) sizes += {static_cast<char>(size >> 8), static_cast<char>(size)};
  return bytes.replace(bytes.find("\xff\xc0") + 5, 4, sizes);
}

class Jpeg : public testing::Test {
 protected:
  void SetUp() override { FRIT_SKIP_WITHOUT("libjpeg"); }
};

TEST_F(Jpeg, HasThePixelsThatPillowDecodes) {
  for (const char* const name : {"grey", "colour", "halved", "progressive", "restarts"}) {
    SCOPED_TRACE(name);
    const Tensor image = parse_jpeg(jpeg_file(name)), expected = jpeg_pixels(name);
    EXPECT_EQ(image.shape(), expected.shape());
    EXPECT_EQ(image.to_vector<float>(), expected.to_vector<float>());
  }
}

TEST_F(Jpeg, IsReadFromAFileByItsContent) {
  const TemporaryFolder folder;
  write_text(folder / "image.png", jpeg_file("halved"));
  EXPECT_EQ(read_jpeg(folder / "image.png").to_vector<float>(), read_image(folder / "image.png").to_vector<float>());
  const ImageHeader header = read_image_header(folder / "image.png");
  EXPECT_EQ((Shape{header.channels, header.height, header.width}), (Shape{3, 19, 21}));
  expect_error(ErrorKind::file_system, "nowhere.jpg: no such file", [&] { read_image(folder / "nowhere.jpg"); });
}

TEST_F(Jpeg, IsNotReadWhereItsShapeIsNotWanted) {
  const std::string bytes = jpeg_file("grey");
  const auto refuse = [](const Shape& shape) { fail(ErrorKind::format, "not ", shape); };
  expect_error(ErrorKind::format, "not 1x9x13", [&] { read_jpeg(MemoryInput(bytes_of(bytes), "image.jpg"), refuse); });
}

TEST_F(Jpeg, RefusesDamage) {
  for (const char* const name : {"grey", "halved", "progressive", "restarts"}) {
    const std::string good = jpeg_file(name);
    for (std::size_t length = 0; length < good.size(); ++length) {
      expect_error(ErrorKind::format, "image.jpg: ", [&] { parse_jpeg(good.substr(0, length)); });
    }
    EXPECT_NO_THROW(parse_jpeg(good + "what a camera adds"));
  }
  const std::string good = jpeg_file("restarts");
  expect_error(ErrorKind::format, "image.jpg: JPEG image: the file ends early: truncated?",
               [&] { parse_jpeg(good.substr(0, good.size() - 9)); });
  std::string damaged = good;
  damaged.erase(good.find("\xff\xd3"), 2);
  expect_error(ErrorKind::format, "image.jpg: JPEG image: Corrupt JPEG data: ", [&] { parse_jpeg(damaged); });
  expect_error(ErrorKind::format, "image.jpg: not a JPEG image: expected \\xff\\xd8 at the start", [&] { parse_jpeg("GIF89a"); });
}

TEST_F(Jpeg, RefusesWhatItDoesNotTake) {
  expect_error(ErrorKind::format, "image.jpg: JPEG image: expected grey or colour, of 1 or 3 components, got 4 (CMYK)",
               [] { parse_jpeg(jpeg_file("cmyk")); });
  std::string arithmetic = jpeg_file("grey");
  arithmetic[arithmetic.find("\xff\xc0") + 1] = '\xc9';
  expect_error(ErrorKind::format, "image.jpg: JPEG image: arithmetic coding, expected Huffman's", [&] { parse_jpeg(arithmetic); });
}

TEST_F(Jpeg, RefusesSizesThatTheFileCannotHold) {
  const std::string grey = jpeg_file("grey");
  const auto read = [&] {
    expect_error(ErrorKind::format,
                 concat("image.jpg: JPEG image: header declares 65500x65500 pixels, more than a file of ", grey.size(),
                        " bytes can hold: truncated?"),
                 [&] { parse_jpeg(declaring(grey, 65500, 65500)); });
  };
  EXPECT_LT(peak_memory(read), std::size_t{sanitized ? 64 : 8} << 20);
  expect_error(ErrorKind::format, "image.jpg: JPEG image: ", [&] { parse_jpeg(declaring(grey, 0, 8)); });
  std::string large = jpeg_file("progressive");
  large[large.find("\xff\xc2") + 5] = '\x40', large[large.find("\xff\xc2") + 7] = '\x40';
  large += std::string(1 << 20, '\0');  // as large as it would have to be
  expect_error(ErrorKind::format, "an image in several scans of 16404x16396 pixels, limit 67108864", [&] { parse_jpeg(large); });
}

TEST_F(Jpeg, RefusesScansWithoutEnd) {
  const std::string good = jpeg_file("progressive");
  const std::size_t last = good.rfind("\xff\xda");
  std::string many = good.substr(0, last);
  for (int i = 0; i < 200; ++i) many += good.substr(last, good.size() - 2 - last);
  expect_error(ErrorKind::format, "image.jpg: JPEG image: ", [&] { parse_jpeg(many + good.substr(good.size() - 2)); });
}

}  // namespace
}  // namespace frit
