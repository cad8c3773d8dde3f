// Faults on purpose, one of each kind that compute-sanitizer's tools look for: a tool that passes its own is not looking.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

namespace {

constexpr int count = 64;

/// memcheck: writes one element past the end.
__global__ void write_beyond(int* data) { data[threadIdx.x + 1] = 1; }

/// racecheck: reads what another warp writes, with no barrier between.
__global__ void race(int* data) {
  __shared__ int shared[count];
  shared[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = shared[count - 1 - threadIdx.x];
}

/// initcheck: reads what nobody wrote.
__global__ void read_unwritten(int* data, const int* unwritten) { data[threadIdx.x] = unwritten[threadIdx.x]; }

/// synccheck: threads come to a warp's barrier that is not for them.
__global__ void wait_uninvited(int* data, unsigned invited) {
  data[threadIdx.x] = 1;
  __syncwarp(invited);
  data[threadIdx.x] += data[threadIdx.x ^ 1];
}

}  // namespace

int main(int argc, char** argv) {
  const auto wants = [&](const char* tool) { return argc == 2 && std::strcmp(argv[1], tool) == 0; };
  int *data = nullptr, *unwritten = nullptr;
  if (cudaMalloc(&data, count * sizeof(int)) != cudaSuccess || cudaMalloc(&unwritten, count * sizeof(int)) != cudaSuccess ||
      cudaMemset(data, 0, count * sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "no CUDA device\n");
    return 1;
  }
  if (wants("memcheck")) write_beyond<<<1, count>>>(data);
  if (wants("racecheck")) race<<<1, count>>>(data);
  if (wants("initcheck")) read_unwritten<<<1, count>>>(data, unwritten);
  if (wants("synccheck")) wait_uninvited<<<1, count>>>(data, 0xffu);
  (void)cudaDeviceSynchronize();
  (void)cudaFree(unwritten);
  (void)cudaFree(data);
  return 0;
}
