#include "frit/core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "frit/core/error.h"
#include "frit/core/processor.h"

namespace frit {
namespace {

/// True while this thread runs a chunk of a call that has several: a parallel_for inside it is serial.
thread_local bool inside_body = false;

/// Waiting this long for the next call, or for the others to end theirs, is cheaper than a sleep and a wake-up: a step consists of many
/// small calls.
constexpr auto spin_time = std::chrono::microseconds(50);

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Spins until `ready` holds or the spin time is over; returns whether it holds.
template <class Ready>
bool spin_until(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

/// One call of parallel_for: its chunks, numbered from 0, and the first exception.
struct Job {
  std::int64_t count = 0;
  std::int64_t grain = 1;
  std::int64_t chunks = 0;
  detail::ChunkFunction run = nullptr;
  const void* body = nullptr;
  std::exception_ptr error;
  alignas(64) std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};

  void run_chunk(std::int64_t chunk) {
    const std::int64_t begin = chunk * grain;
    try {
      run(body, begin, begin + std::min(grain, count - begin));
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }

  void run_chunks() {
    while (true) {
      const std::int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) return;
      run_chunk(chunk);
    }
  }

  void rethrow() {
    if (failed.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

class InsideBody {
 public:
  InsideBody() : before_(inside_body) { inside_body = true; }
  ~InsideBody() { inside_body = before_; }
  InsideBody(const InsideBody&) = delete;
  InsideBody& operator=(const InsideBody&) = delete;

 private:
  bool before_;
};

/// Workers join an open job and leave when no chunk is left; the caller closes the job and waits for those inside alone, so a worker
/// that slept through a short job delays nobody. `state_` holds all of it: the job's number, whether it is open, the workers inside.
class Pool {
 public:
  static Pool& instance();

  int threads() const { return threads_.load(std::memory_order_relaxed); }

  void resize(int threads) {
    const std::lock_guard submit(submit_mutex_);
    stop();
    threads_ = threads;
  }

  void run(std::int64_t count, std::int64_t grain, std::int64_t chunks, detail::ChunkFunction function, const void* body) {
    std::unique_lock submit(submit_mutex_, std::defer_lock);
    // The workers serve one caller at a time; another one meanwhile does its work itself.
    if (inside_body || threads() == 1 || !submit.try_lock()) return run_serially(count, grain, chunks, function, body);
    if (workers_.empty()) start();
    job_.count = count;
    job_.grain = grain;
    job_.chunks = chunks;
    job_.run = function;
    job_.body = body;
    job_.failed.store(false, std::memory_order_relaxed);
    job_.next.store(0, std::memory_order_relaxed);
    open(chunks - 1);
    {
      const InsideBody inside;
      job_.run_chunks();
    }
    close();
    job_.rethrow();
  }

 private:
  static constexpr std::uint64_t inside_mask = 0xffff;
  static constexpr std::uint64_t open_bit = 0x10000;
  static constexpr int number_shift = 17;

  static void run_serially(std::int64_t count, std::int64_t grain, std::int64_t chunks, detail::ChunkFunction function, const void* body) {
    Job job;
    job.count = count;
    job.grain = grain;
    job.run = function;
    job.body = body;
    const InsideBody inside;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) job.run_chunk(chunk);
    job.rethrow();
  }

  void open(std::int64_t helpers) {
    const std::uint64_t number = (state_.load(std::memory_order_relaxed) >> number_shift) + 1;
    // Sequentially consistent, as is sleepers_: either the worker sees the open job or we see the sleeper.
    state_.store((number << number_shift) | open_bit);
    const int sleepers = sleepers_.load();
    if (sleepers == 0) return;
    { const std::lock_guard lock(mutex_); }
    if (helpers >= sleepers) {
      wake_.notify_all();
    } else {
      for (std::int64_t i = 0; i < helpers; ++i) wake_.notify_one();
    }
  }

  void close() {
    state_.fetch_and(~open_bit);
    const auto all_left = [this] { return (state_.load() & inside_mask) == 0; };
    if (spin_until(all_left)) return;
    std::unique_lock lock(mutex_);
    left_.wait(lock, all_left);
  }

  static bool is_new(std::uint64_t state, std::uint64_t last) { return (state & open_bit) != 0 && (state >> number_shift) != last; }

  void work() {
    inside_body = true;
    std::uint64_t last = 0;
    const auto job_or_stop = [&] { return stopping_.load() || is_new(state_.load(), last); };
    while (true) {
      if (!spin_ || !spin_until(job_or_stop)) sleep_until(job_or_stop);
      if (stopping_.load()) return;
      std::uint64_t state = state_.load();
      while (is_new(state, last)) {
        if (!state_.compare_exchange_weak(state, state + 1)) continue;
        last = state >> number_shift;
        job_.run_chunks();
        const std::uint64_t after = state_.fetch_sub(1) - 1;
        if ((after & (inside_mask | open_bit)) != 0) break;
        { const std::lock_guard lock(mutex_); }
        left_.notify_one();
        break;
      }
    }
  }

  template <class Ready>
  void sleep_until(const Ready& ready) {
    std::unique_lock lock(mutex_);
    ++sleepers_;
    wake_.wait(lock, ready);
    --sleepers_;
  }

  void start() {
    stopping_ = false;
    spin_ = threads() <= core_count();
    try {
      while (static_cast<int>(workers_.size()) < threads() - 1) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The system gives no more threads: those that there are do the same work.
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::mutex submit_mutex_;  ///< held by the caller whose job the workers serve
  Job job_;
  alignas(64) std::atomic<std::uint64_t> state_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int> threads_{core_count()};
  bool spin_ = true;  ///< not with more threads than cores, where it would hold up those that have work
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable left_;
  std::vector<std::thread> workers_;
};

Pool& Pool::instance() {
  // Never destroyed, so that a static object's destructor may still call parallel_for; only the workers end with the process.
  static Pool& pool = *new Pool;
  static const struct Shutdown {
    ~Shutdown() {
      if (!inside_body) pool.resize(1);  // exit() called by a body ends the process without waiting for the others
    }
  } shutdown;
  return pool;
}

}  // namespace

int thread_count() { return Pool::instance().threads(); }

void set_thread_count(int threads) {
  require(threads >= 1, "set_thread_count: needs at least 1 thread, got ", threads);
  require(threads <= 4096, "set_thread_count: at most 4096 threads, got ", threads);
  FRIT_CHECK(!inside_body);
  if (threads != thread_count()) Pool::instance().resize(threads);
}

void detail::parallel_for(std::int64_t count, std::int64_t grain, ChunkFunction run, const void* body) {
  FRIT_CHECK(grain > 0);
  if (count <= 0) return;
  if (count <= grain) return run(body, 0, count);
  Pool::instance().run(count, grain, (count - 1) / grain + 1, run, body);
}

}  // namespace frit
