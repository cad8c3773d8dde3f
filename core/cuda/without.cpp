// A build without CUDA: this file stands in for the others of this folder.

#include "frit/core/cuda/captured_work.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/noise.h"
#include "frit/core/cuda/timer.h"

namespace frit::cuda {
namespace {

[[noreturn]] void no_cuda() { fail(ErrorKind::device, "this build has no CUDA devices"); }

}  // namespace

int device_count() { return 0; }
std::string description(int) { no_cuda(); }
std::string model(int) { no_cuda(); }
std::string version() { return {}; }
Allocator& allocator(int) { no_cuda(); }
void copy(const Tensor&, const Tensor&) { no_cuda(); }
CUstream_st* compute_stream(int) { no_cuda(); }
void synchronize(int) { no_cuda(); }
void fill_with_noise(const Tensor&) { no_cuda(); }
void CapturedWork::record(int, const std::function<void()>&) { no_cuda(); }
void CapturedWork::launch() const { no_cuda(); }
EventTimer::EventTimer(int) { no_cuda(); }
void EventTimer::time(const std::function<void()>&) { no_cuda(); }
std::vector<double> EventTimer::take() { no_cuda(); }

}  // namespace frit::cuda
