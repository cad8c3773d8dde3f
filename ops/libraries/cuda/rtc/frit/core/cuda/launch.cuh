#pragma once

#include <std.h>

// What headers of kernels name of the host's side, which nobody calls here.

#define FRIT_CHECK(condition) ((void)0)

namespace frit::cuda {

struct LaunchShape {
  dim3 grid, block;
};

inline constexpr int default_threads = 256;

template <class... Arguments>
void launch(Arguments&&...);

}  // namespace frit::cuda
