#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frit/core/data/dataset.h"
#include "frit/core/data/patches.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/io/shape_check.h"

namespace frit {

enum class Split { train, test };

// Every reader throws ErrorKind::format or ErrorKind::file_system with the file's name. Arrays stay in their files, and a batch's rows are
// read when they are asked for, where the file has them as they are: .npy, IDX and .safetensors, not compressed nor in Fortran order.

/// IDX images (N,H,W) as f32 "input" in [0, 1] of shape (1,H,W), and IDX labels (N) as i64 "target".
std::shared_ptr<Dataset> read_idx_dataset(const std::string& images, const std::string& labels);
/// The folder of an MNIST set: train-images-idx3-ubyte, t10k-labels-idx1-ubyte and so on, with or without .gz. Debian's package
/// dataset-fashion-mnist has one at /usr/share/datasets/fashion-mnist.
std::shared_ptr<Dataset> read_mnist_dataset(const std::string& folder, Split split);
/// One array of "input" and one of "target".
std::shared_ptr<Dataset> read_npy_dataset(const std::string& inputs, const std::string& targets);
/// All arrays of a file, whose first axes must be the same: a field each, "input" and "target" first, then by name.
std::shared_ptr<Dataset> read_npz_dataset(const std::string& path);
std::shared_ptr<Dataset> read_safetensors_dataset(const std::string& path);

/// PNG and JPEG images in one folder a class: f32 "input" (1 or 3,H,W) in [0, 1] and i64 "target", the class's place among the folders'
/// names in the order of their bytes. Grey images among coloured ones are given three equal channels. Images are decoded when a batch is
/// read.
class ImageDataset final : public Dataset {
 public:
  /// All images must have one size, unless an `image_size` (H, W) is given, to which they are brought: each pixel is the mean of what it
  /// covers, weighted by distance. `classes`, if any, are the folders to be read, in this order.
  explicit ImageDataset(const std::string& folder, const Shape& image_size = {}, std::vector<std::string> classes = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override;
  const std::vector<std::string>& classes() const { return classes_; }
  /// The names of a folder's folders, in the order of their bytes.
  static std::vector<std::string> classes_in(const std::string& folder);

 private:
  struct File {
    std::string path;
    std::int64_t target;
  };

  bool resize_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  std::vector<Field> fields_;
};

/// PNG and JPEG images in `folder`/images, and in `folder`/masks a PNG image of each one's name and size, grey or with a palette, whose
/// numbers are classes: f32 "input" (1 or 3,H,W) as of ImageDataset, and i64 "target" (H,W). With an `image_size` (H, W) a mask takes the
/// class at the nearest place.
std::shared_ptr<Dataset> read_mask_dataset(const std::string& folder, const Shape& image_size = {});

/// Whether the folder has folders images and masks.
bool has_mask_files(const std::string& folder);

/// Volumes in NIfTI files, f32 "input" (1,D,H,W) and what is true of each voxel, f32 "target" (D,H,W): of `folder`, either inputs.nii and
/// targets.nii, or as many pairs of files with the same name in its folders inputs and targets, .nii or .nii.gz. Without a patch size the
/// volumes are the examples and must have one size; otherwise their patches are.
std::shared_ptr<Dataset> read_nifti_dataset(const std::string& folder, const PatchOptions& patches = {});

/// Whether the folder has volumes, as read_nifti_dataset expects them.
bool has_nifti_files(const std::string& folder);

struct ReadOptions {
  Shape image_size = {};                  ///< of ImageDataset and read_mask_dataset
  std::vector<std::string> classes = {};  ///< of ImageDataset; for a part for testing those of the training part, unless given
  PatchOptions patches = {};              ///< of read_nifti_dataset
  /// The fields that are wanted. Only arrays by name can be others than these two: of a file no more and no fewer; in a folder of arrays
  /// further files are passed over.
  std::vector<std::string> fields = {"input", "target"};
};

/// The examples of one file, one a row, with the bits that training has of them as "input":
/// - IDX images u8 (N,H,W), plain or compressed by gzip: f32 (N,1,H,W) in [0, 1], as of read_idx_dataset
/// - a PNG or JPEG image: f32 (1, 1 or 3,H,W) in [0, 1], as of ImageDataset; a grey one keeps its one channel
/// - a NIfTI file: f32 (1,1,D,H,W), or of several volumes (1,T,D,H,W), as of read_nifti_dataset
/// - a .npy file: its array (N,...) as it is
/// The first bytes say which of them a file is, whatever it is called; of bytes that say nothing the name decides, so that the reader which
/// was meant says what is wrong, and otherwise a .npy file is expected. Throws ErrorKind::format, ErrorKind::file_system, and what `check`
/// throws of the shape.
Tensor read_examples(const std::string& path, const ShapeCheck& check = {});
/// The arrays of a .npz or .safetensors file by their names; nothing for a file that is neither. Throws as read_examples does.
std::optional<TensorMap> read_named_arrays(const std::string& path);
/// The files of a folder that are called so: .npy, .png, .jpg, .jpeg, .nii, .nii.gz and MNIST's ...idx3-ubyte, with or without .gz; hidden
/// ones are left out. In the order of their names' bytes. Throws ErrorKind::file_system if there are none.
std::vector<std::string> example_files(const std::string& folder);

/// "input" and "target" from what is there: a .safetensors or .npz file, or a folder with inputs.npy and targets.npy, with MNIST files,
/// with volumes as in read_nifti_dataset, with images and masks as in read_mask_dataset, with a folder of images a class; or a folder with
/// two of these, called train and test (or val). Other fields that are wanted are arrays of their names in the file, or NAME.npy next to
/// inputs.npy. Throws ErrorKind::argument for options that do not go with the format, ErrorKind::format, naming all fields that are missing
/// and all that are too much, and ErrorKind::file_system, naming all files that are.
std::shared_ptr<Dataset> read_dataset(const std::string& path, Split split = Split::train, const ReadOptions& options = {});
/// What read_dataset may read there: the file, or of a folder the files below it that are called as data are.
std::vector<std::string> dataset_files(const std::string& path);
/// Whether the data at the path have a part for testing, which read_dataset then finds: MNIST files, and folders called train and test.
bool has_test_split(const std::string& path);
/// The classes of the folder of images at the path, or of its part for training: data for testing that lie elsewhere are to be read
/// with these. Empty for other data.
std::vector<std::string> class_names(const std::string& path);

}  // namespace frit
