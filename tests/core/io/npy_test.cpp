#include "frit/core/io/npy.h"

#include <gtest/gtest.h>

#include <random>

#include "core/io/file_testing.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

/// An array file as numpy.save writes it: the dictionary padded with spaces to a newline at byte 128.
std::string saved(const std::string& dictionary, std::string_view data) {
  std::string text("\x93NUMPY\x01\x00\x76\x00", 10);
  text += dictionary + std::string(127 - 10 - dictionary.size(), ' ') + '\n';
  return text + std::string(data);
}

Tensor parse_array(const std::string& text) { return parse_npy(bytes_of(text), "memory"); }

TEST(Npy, WritesWhatNumpyWrites) {
  const Tensor vector = Tensor::from<std::uint8_t>({1, 2, 3}, {3});
  EXPECT_EQ(text_of(serialize_npy(vector)), saved("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "\1\2\3"));
  const Tensor matrix = Tensor::from<std::int32_t>({1, 2}, {1, 2});
  EXPECT_EQ(text_of(serialize_npy(matrix)),
            saved("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }", std::string_view("\1\0\0\0\2\0\0\0", 8)));
  const Tensor scalar = Tensor::from<double>({1}, {});
  EXPECT_EQ(text_of(serialize_npy(scalar)),
            saved("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::string_view("\0\0\0\0\0\0\xf0\x3f", 8)));
}

TEST(Npy, RandomTensorsReadBackBitForBit) {
  std::mt19937_64 random(1);
  const TemporaryFolder folder;
  for (int i = 0; i < 2000; ++i) {
    const DType dtype = all_dtypes[random() % std::size(all_dtypes)];
    if (dtype == DType::bf16) continue;
    Shape shape;
    for (std::uint64_t rank = random() % 9; rank > 0; --rank)
      shape.push_back(static_cast<std::int64_t>(random() % (shape.rank() < 4 ? 5 : 3)));
    const Tensor tensor = Tensor::empty(shape, dtype);
    auto* const memory = static_cast<unsigned char*>(tensor.raw());
    for (std::int64_t k = 0; k < tensor.bytes(); ++k) memory[k] = static_cast<unsigned char>(random());
    const Tensor written = shape.rank() >= 2 && i % 2 == 0 ? tensor.transpose(0, 1) : tensor;
    Tensor got = parse_npy(serialize_npy(written), "memory");
    if (i % 100 == 0) {
      write_npy(folder / "array.npy", written);
      got = read_npy(folder / "array.npy");
    }
    ASSERT_EQ(got.dtype(), dtype);
    ASSERT_EQ(got.shape(), written.shape());
    ASSERT_EQ(text_of(serialize_npy(got)), text_of(serialize_npy(written)));
  }
}

TEST(Npy, ReadsFortranOrderAsTheArrayThatItIs) {
  // numpy.asfortranarray([[1, 2, 3], [4, 5, 6]], dtype=uint8)
  const Tensor tensor = parse_array(saved("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", "\1\4\2\5\3\6"));
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
  EXPECT_EQ(tensor.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(Npy, SwapsBigEndianNumbers) {
  const Tensor floats =
      parse_array(saved("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", std::string_view("\x3f\x80\0\0\xc0\0\0\0", 8)));
  EXPECT_EQ(floats.to_vector<float>(), (std::vector<float>{1, -2}));
  const Tensor integers =
      parse_array(saved("{'descr': '>i8', 'fortran_order': False, 'shape': (1,), }", std::string_view("\0\0\0\0\0\0\1\2", 8)));
  EXPECT_EQ(integers.item(), 258);
}

TEST(Npy, ReadsOtherSpellingsOfTheHeader) {
  const std::string spellings[] = {
      "{'shape': (3,), 'fortran_order': False, 'descr': '|u1'}",    "{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(3,)}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (3L,), }", " { 'descr' : '|b1' , 'fortran_order' : True , 'shape' : ( 3 , ) , } ",
      "{'descr': '<u1', 'fortran_order': False, 'shape': (3,)}",
  };
  for (const std::string& dictionary : spellings) {
    EXPECT_EQ(parse_array(saved(dictionary, std::string_view("\1\0\1", 3))).to_vector<double>(), (std::vector<double>{1, 0, 1}))
        << dictionary;
  }
  const std::string unpadded = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}";
  for (const char version : {'\1', '\2', '\3'}) {
    std::string text = std::string("\x93NUMPY") + version + '\0' + static_cast<char>(unpadded.size()) + '\0';
    if (version > 1) text += std::string(2, '\0');
    EXPECT_EQ(parse_array(text + unpadded + "\5\6").to_vector<double>(), (std::vector<double>{5, 6}));
  }
}

TEST(Npy, ReadsEmptyAndScalarArrays) {
  EXPECT_EQ(parse_array(saved("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", std::string_view("\0\0\x80\x3f", 4))).item(), 1);
  EXPECT_EQ(parse_array(saved("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3), }", "")).shape(), (Shape{0, 3}));
}

TEST(Npy, RefusesToWriteBfloat16) {
  expect_error(ErrorKind::argument, "NumPy has no bf16", [] { serialize_npy(Tensor::zeros({1}, DType::bf16)); });
  expect_error(ErrorKind::argument, "undefined", [] { serialize_npy(Tensor()); });
}

TEST(NpyStream, ReadsArraysOneBehindAnotherInAnyPieces) {
  const Tensor first = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}), second = Tensor::zeros({0, 3}, DType::i64),
               third = Tensor::full({100, 300}, 7, DType::f64);  // more than a header's length
  std::vector<std::byte> bytes;
  for (const Tensor& tensor : {first, second, third}) {
    const std::vector<std::byte> file = serialize_npy(tensor);
    bytes.insert(bytes.end(), file.begin(), file.end());
  }
  std::size_t at = 0;
  const auto stream_of = [&](std::size_t end) {
    at = 0;
    const auto read = [&bytes, &at, end](std::span<std::byte> into) {
      const std::size_t count = std::min(into.size(), end - at);
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, into.begin());
      at += count;
      return count;
    };
    return NpyStream(read, "a stream");
  };
  NpyStream stream = stream_of(bytes.size());
  for (const Tensor& expected : {first, second, third}) {
    const std::optional<Tensor> found = stream.next();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->shape(), expected.shape());
    EXPECT_EQ(found->dtype(), expected.dtype());
    EXPECT_EQ(found->to_vector<double>(), expected.to_vector<double>());
  }
  EXPECT_FALSE(stream.next()) << "the end";

  for (std::size_t end = serialize_npy(first).size() + 1; end < bytes.size(); end += 997) {
    NpyStream cut = stream_of(end);
    try {
      while (cut.next()) {
      }
      EXPECT_EQ(end, serialize_npy(first).size() + serialize_npy(second).size()) << "only between arrays is it an end";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format);
      EXPECT_NE(std::string(error.what()).find("a stream: array "), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace frit
