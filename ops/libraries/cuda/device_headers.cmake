# Writes the headers that kernels compiled at run time include, as text that is part of the library: those below, and what they include.
# Where ops/libraries/cuda/rtc has a header of the same name, that one is taken; all headers of the C++ library are its std.h.
set(stand_ins ${PROJECT_SOURCE_DIR}/ops/libraries/cuda/rtc)
set(open "frit/ops/elementwise/program_stage.cuh" "frit/ops/norm/column_gradients.cuh"
  "frit/ops/pool/avg_pool.cuh" "frit/ops/pool/max_pool.cuh" "frit/ops/reduction/elementwise_sums.cuh" "frit/ops/reduction/reductions.cuh"
  "frit/ops/reduction/softmax_rows.cuh"
  "frit/ops/convolution/few_pixels.cuh" "frit/ops/convolution/lowerings/block_map.cuh" "frit/ops/convolution/tiles/patch_taps.cuh" "frit/ops/convolution/tiles/phase_taps.cuh"
  "frit/ops/convolution/tiles/swept_rows.cuh")
set(known "")
set(texts "")
while(open)
  list(POP_FRONT open header)
  list(APPEND known ${header})
  string(REGEX REPLACE "^frit/" "${PROJECT_SOURCE_DIR}/" file ${header})
  if(EXISTS ${stand_ins}/${header})
    set(file ${stand_ins}/${header})
  endif()
  if(header MATCHES "/|^std.h$")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
  else()
    set(text "#include <std.h>\n")
  endif()
  string(APPEND texts "    {\"${header}\", R\"frit(${text})frit\"},\n")
  string(REGEX MATCHALL "#include [<\"][^>\"]+[>\"]" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include [<\"]([^>\"]+)[>\"]" "\\1" included ${include})
    if(NOT included IN_LIST known AND NOT included IN_LIST open)
      list(APPEND open ${included})
    endif()
  endforeach()
endwhile()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/device_headers.cpp @ONLY CONTENT
"// Written by ops/libraries/cuda/device_headers.cmake.
#include \"frit/ops/libraries/cuda/device_headers.h\"

namespace frit::nvrtc {

std::span<const DeviceHeader> device_headers() {
  static constexpr DeviceHeader headers[] = {
@texts@  };
  return headers;
}

}  // namespace frit::nvrtc
")
target_sources(frit_runtime PRIVATE ${PROJECT_BINARY_DIR}/device_headers.cpp)
