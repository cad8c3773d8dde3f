#pragma once

#include <cstdint>

namespace frit {

/// The number of threads that parallel_for uses, the caller included. Starts as the number of cores that the process may use.
int thread_count();
/// Throws ErrorKind::argument below 1. Must not be called from inside parallel_for.
void set_thread_count(int threads);

namespace detail {
using ChunkFunction = void (*)(const void* body, std::int64_t begin, std::int64_t end);
void parallel_for(std::int64_t count, std::int64_t grain, ChunkFunction run, const void* body);
}  // namespace detail

/// Calls body(begin, end) for [0, grain), [grain, 2 grain), ... up to count, in any order and on any thread. The chunks depend
/// on `grain` alone, so a sum kept per chunk and added in chunk order has the same bits for any thread count. The first exception is
/// rethrown here after all chunks have ended. Inside a running body a further parallel_for runs on the calling thread, unless the outer
/// call has one chunk only: then the inner one may have the workers. No memory is allocated, but for starting the workers.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  detail::parallel_for(
      count, grain, [](const void* self, std::int64_t begin, std::int64_t end) { (*static_cast<const Body*>(self))(begin, end); }, &body);
}

}  // namespace frit
