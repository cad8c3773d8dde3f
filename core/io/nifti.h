#pragma once

#include <array>
#include <string>

#include "frit/core/io/shape_check.h"
#include "frit/core/tensor.h"

namespace frit {

class Input;

/// The voxels of a NIfTI file (versions 1 and 2, one file, plain or compressed by gzip; read through libnifti2).
struct NiftiVolume {
  Tensor voxels;                              ///< f32 (D, H, W): the file's axes z, y, x; of a file of several volumes (T, D, H, W)
  std::array<double, 3> spacing = {1, 1, 1};  ///< from one voxel to the next on D, H and W, in the file's unit, which is nearly always mm

  /// The voxels as a network takes them: (1, D, H, W), or (T, D, H, W).
  Tensor channels() const;
};

/// Every element type of integers and real numbers is converted to f32 and goes through the file's slope and intercept. Throws
/// ErrorKind::format for what is damaged or not supported, or if frit was built without libnifti2; ErrorKind::file_system. `check` is given
/// the shape of `channels`.
NiftiVolume read_nifti(const std::string& path, const ShapeCheck& check = {});
NiftiVolume read_nifti(const Input& input, const ShapeCheck& check = {});

}  // namespace frit
