// What libFuzzer calls, for the one target of a program.

#include <algorithm>

#include "fuzz/fuzzing.h"

using namespace frit::fuzzing;

extern "C" {

std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

int LLVMFuzzerInitialize(int*, char***) {
  prepare();
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read(targets().front(), {reinterpret_cast<const char*>(data), size});
  return 0;
}

std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  if (const Mutator mutate = targets().front().mutate; mutate != nullptr) {
    const std::string mutated = mutate({reinterpret_cast<const char*>(data), size}, most, seed, LLVMFuzzerMutate);
    if (!mutated.empty() && mutated.size() <= most) {
      std::copy(mutated.begin(), mutated.end(), reinterpret_cast<char*>(data));
      return mutated.size();
    }
  }
  return LLVMFuzzerMutate(data, size, most);
}

}  // extern "C"
