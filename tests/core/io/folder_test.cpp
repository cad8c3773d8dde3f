#include "frit/core/io/folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/io/file_testing.h"
#include "frit/core/data/files.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

using Names = std::vector<std::string>;

TEST(Folder, NamesWhatIsWantedInOrder) {
  const TemporaryFolder folder;
  for (const char* const name : {"b.x", "B.x", "a.x", "a.y", ".hidden.x"}) write_text(folder / name, "");
  std::filesystem::create_directory(folder / "c.x");
  const auto wanted = [](const std::string& path) { return path.ends_with(".x"); };
  EXPECT_EQ(names_in(folder.path(), wanted), (Names{"B.x", "a.x", "b.x", "c.x"}));
  EXPECT_EQ(names_in(folder.path(), is_folder), (Names{"c.x"}));
  EXPECT_TRUE(has_any(folder.path(), wanted));
  EXPECT_FALSE(has_any(folder / "c.x", wanted));
}

TEST(Folder, WhatCannotBeReadIsNamedOrHasNothing) {
  const TemporaryFolder folder;
  write_text(folder / "file", "");
  const auto all = [](const std::string&) { return true; };
  expect_error(ErrorKind::file_system, "nowhere: no such file", [&] { names_in(folder / "nowhere", all); });
  expect_error(ErrorKind::file_system, "file: not a directory", [&] { names_in(folder / "file", all); });
  EXPECT_FALSE(has_any(folder / "nowhere", all));
  // Two links that lead to each other are no folder, and nothing throws an error of the standard library's.
  std::filesystem::create_symlink(folder / "two", folder / "one");
  std::filesystem::create_symlink(folder / "one", folder / "two");
  EXPECT_FALSE(is_folder(folder / "one"));
  EXPECT_EQ(names_in(folder.path(), is_folder), Names());
  expect_error(ErrorKind::file_system, "one: too many levels of symbolic links", [&] { names_in(folder / "one", all); });
}

TEST(Folder, DataWhoseFolderIsALoopAreRefusedByName) {
  const TemporaryFolder folder;
  for (const char* const name : {"images", "inputs"}) std::filesystem::create_symlink(folder / name, folder / name);
  expect_error(ErrorKind::file_system, "/images: too many levels of symbolic links", [&] { read_mask_dataset(folder.path()); });
  expect_error(ErrorKind::format, ": has no inputs.nii or .nii.gz, nor such files in a folder inputs",
               [&] { read_nifti_dataset(folder.path()); });
}

}  // namespace
}  // namespace frit
