#pragma once

#include "frit/ops/operator/operator.h"

// The lowerings of convolutions (see Operator::lowerings). Most are for few channels, where the library's kernels leave most of a tensor
// core idle.

namespace frit::ops {

/// Of conv2d and conv3d: with zero channels added up to a multiple.
Lowering padded_channels(const char* name, std::int64_t multiple);

/// Of conv2d and conv3d with a stride: over the image's blocks of one stride, whose places are channels (space_to_depth), with a stride of 1.
Lowering blocks_as_channels(const char* name);

/// Of conv2d and conv3d with a kernel as large as the image: as a product of matrices.
Lowering whole_images(const char* name);

/// Of conv_transpose2d and conv_transpose3d of images of one pixel, likewise.
Lowering single_pixels(const char* name);

/// Of conv2d: from few channels in vectors of 16 bytes, with zeros added where they are none, which frit's own kernels read once for all
/// 3 x 3 taps.
Lowering few_channels_in_vectors(const char* name);

/// Of conv2d and conv3d: after im2col, which makes the taps of the first so many image axes channels.
Lowering im2col_lowering(const char* name, int axes);

/// Of conv2d_weight_gradient and conv3d_weight_gradient, likewise.
Lowering im2col_weight_gradient(const char* name, int axes);

/// Of conv2d and conv3d in groups, whose kernels in the library take longer than one over all channels: with zeros between the groups.
Lowering dense_groups(const char* name);

/// Of conv2d_weight_gradient and conv3d_weight_gradient, with few channels in each of many groups: the blocks along the diagonal of a dense
/// weight's gradient.
Lowering dense_weight_gradient(const char* name);

/// Of conv2d_weight_gradient and conv3d_weight_gradient, of size 1 and channels that tensor cores cannot load as they are: with so many
/// pixels as one that their channels are whole vectors.
Lowering merged_pixels(const char* name);

/// Of conv_transpose2d and conv_transpose3d with a stride, from many channels to few: to the result's blocks of one stride, whose places
/// are channels (depth_to_space), with a stride of 1.
Lowering results_in_blocks(const char* name);

/// Of conv_transpose2d and conv_transpose3d: as one convolution of size 1 (see subpixel.h).
Lowering subpixel_lowering(const char* name);

}  // namespace frit::ops
