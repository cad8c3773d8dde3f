#include "frit/core/dtype.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace frit {
namespace {

TEST(DType, SizesNamesAndKinds) {
  EXPECT_EQ(size_of(DType::f64), 8u);
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::i64), 8u);
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(size_of(DType::u8), 1u);
  for (const DType dtype : all_dtypes) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    EXPECT_EQ(concat(dtype), name_of(dtype));
    EXPECT_EQ(is_floating(dtype), name_of(dtype).find('f') != std::string_view::npos);
    EXPECT_EQ(is_half(dtype), name_of(dtype).ends_with("f16"));
  }
}

TEST(DType, ParsingListsTheNames) {
  for (const char* name : {"", "F32", "float", "f8", "f32 "}) {
    try {
      parse_dtype(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      EXPECT_EQ(std::string(error.what()), concat("unknown dtype \"", name, "\": expected one of f64 f32 f16 bf16 i64 i32 u8"));
    }
  }
}

TEST(DType, DispatchGivesTheCppType) {
  for (const DType dtype : all_dtypes) {
    EXPECT_EQ(dispatch_all(dtype, []<class T>() { return dtype_of<T>(); }), dtype);
    if (is_half(dtype)) {
      EXPECT_THROW(dispatch_arithmetic(dtype, []<class T>() { return sizeof(T); }), Error);
    } else {
      EXPECT_EQ(dispatch_arithmetic(dtype, []<class T>() { return dtype_of<T>(); }), dtype);
    }
  }
  EXPECT_EQ(dispatch_floating(DType::f32, []<class T>() { return sizeof(T); }), 4u);
  try {
    dispatch_floating(DType::i32, []<class T>() { return sizeof(T); });
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bug);
    EXPECT_STREQ(error.what(), "no floating kernel for dtype i32");
  }
}

}  // namespace
}  // namespace frit
