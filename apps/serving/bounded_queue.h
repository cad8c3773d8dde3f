#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace frit::apps {

/// Hands values from one thread to another, so many at most at a time: a fast writer waits for a slow reader.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  /// Waits for room. False once the queue is closed, and the value is dropped.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || values_.size() < capacity_; });
    if (closed_) return false;
    values_.push_back(std::move(value));
    changed_.notify_all();
    return true;
  }

  /// Waits for a value; none once the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !values_.empty(); });
    return take();
  }

  /// A value if one is there.
  std::optional<T> try_pop() {
    const std::unique_lock lock(mutex_);
    return take();
  }

  /// What is in it can still be popped.
  void close() {
    const std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::optional<T> take() {
    if (values_.empty()) return std::nullopt;
    std::optional<T> value = std::move(values_.front());
    values_.pop_front();
    changed_.notify_all();
    return value;
  }

  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
  bool closed_ = false;
};

}  // namespace frit::apps
