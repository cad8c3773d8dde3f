// A star: each process has one connection, with the first, which gathers and hands out. Every wait of the first looks at all connections,
// so that a process that ends is noticed whoever is waited for, and all others are told its rank.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "frit/core/communication/tcp_message.h"
#include "frit/core/error.h"

namespace frit {
namespace {

using tcp::bytes_of;
using tcp::Deadline;
using tcp::Header;
using tcp::Hello;
using tcp::Incoming;
using tcp::Progress;
using tcp::Socket;
using tcp::view;

class TcpTransport : public Transport {
 public:
  TcpTransport(const Launch& launch, double seconds) : launch_(launch), seconds_(seconds) {}

  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.size; }
  std::string description() const override { return tcp::meeting_text(launch_); }

  void all_to_all(const void*, void*, std::size_t) override {
    fail(ErrorKind::argument, "gradients of CPUs are reduced by MPI; start the processes with it: mpirun -n ", size(), " ...");
  }
  [[noreturn]] void abort() override {
    constexpr int code = 5;  // of the program frit for an error of a device
    for (const Socket& socket : connections_) (void)shutdown(socket.descriptor(), SHUT_RDWR);
    std::cout.flush();
    std::cerr.flush();
    (void)std::fflush(nullptr);
    std::_Exit(code);
  }

 protected:
  Header next(Header::Kind kind, std::size_t bytes) { return {.kind = kind, .call = ++calls_, .bytes = bytes}; }
  Deadline deadline() const { return Deadline(seconds_); }
  template <class... Parts>
  [[noreturn]] void give_up(const Parts&... parts) const {
    lost_ = concat(description(), ": ", parts...);
    throw ProcessLost(lost_);
  }
  /// When the processes are at their end already, which another thread of this one says.
  void check_none_lost() const {
    if (!lost_.empty()) throw_told(lost_);
  }
  void check_same(int rank, const Header& theirs, const Header& own) const {
    if (theirs.kind == own.kind && theirs.call == own.call && theirs.bytes == own.bytes) return;
    const auto text = [](const Header& header) {
      return concat(header.kind == Header::gather ? "gathers " : "broadcasts ", header.bytes, " bytes in its call ", header.call);
    };
    give_up("process ", rank, ' ', text(theirs), ", process ", launch_.rank, ' ', text(own));
  }

  Launch launch_;
  double seconds_;
  std::vector<Socket> connections_;  // of the first by rank, with none for itself; of others the one with the first
  std::mutex in_use_;                // held by whoever speaks
  mutable std::string lost_;         // what has ended them

 private:
  std::uint64_t calls_ = 0;
};

class First final : public TcpTransport {
 public:
  First(const Launch& launch, double seconds) : TcpTransport(launch, seconds) {
    if (size() > 1) connections_ = tcp::meet(launch, seconds);
    for (int r = 1; r < size(); ++r) others_.push_back(r);
  }

  void all_gather(const void* own, void* all, std::size_t bytes) override {
    const std::lock_guard lock(in_use_);
    std::byte* const to = static_cast<std::byte*>(all);
    std::copy_n(static_cast<const std::byte*>(own), bytes, to);
    telling_others([&] {
      const Header header = next(Header::gather, bytes);
      const std::vector<Incoming> messages = collect(others_, header);
      for (const int r : others_) std::ranges::copy(content(messages, r), to + bytes * static_cast<std::size_t>(r));
      send_to_others(header, view(all, bytes * static_cast<std::size_t>(size())), rank());
    });
  }

  void broadcast(void* data, std::size_t bytes, int root) override {
    const std::lock_guard lock(in_use_);
    telling_others([&] {
      const Header header = next(Header::broadcast, bytes);
      if (root != rank()) std::ranges::copy(content(collect({root}, header), root), static_cast<std::byte*>(data));
      send_to_others(header, view(data, bytes), root);
    });
  }

  void tell_that_it_waits() override {
    const std::unique_lock lock(in_use_, std::try_to_lock);
    if (lock.owns_lock()) signs_.give(connections_);  // else another thread waits for the others
  }

  void find_lost(double waited, const std::function<bool()>& done) override {
    const std::lock_guard lock(in_use_);
    check_none_lost();
    telling_others([&] {
      const Header question{.kind = Header::question, .call = ++questions_};
      for (const int r : others_) (void)tcp::send_all(connection(r), bytes_of(question), Deadline(0));
      std::vector<int> silent = others_;
      for (const Deadline until(roll_call_seconds); !until.passed(); std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
        if (done()) return;
        std::erase_if(silent, [&](int r) { return waits(r); });
        signs_.give(connections_);
      }
      give_up(lost_text(silent, waited));
    });
  }

 private:
  const Socket& connection(int rank) const { return connections_[static_cast<std::size_t>(rank)]; }

  /// What goes wrong here ends the waiting of all.
  template <class Body>
  void telling_others(const Body& body) const {
    try {
      body();
    } catch (const Error& error) {
      tcp::send_failure(connections_, error.what());
      throw;
    }
  }

  /// Whether the process has answered the question, or waits in a call.
  bool waits(int rank) const {
    Header header;
    while (tcp::peek(connection(rank), std::as_writable_bytes(std::span(&header, 1)))) {
      if (header.kind != Header::answer) return true;
      (void)tcp::receive_all(connection(rank), std::as_writable_bytes(std::span(&header, 1)), Deadline(0));
      if (header.call == questions_) return true;
    }
    return false;
  }

  void send_to_others(const Header& header, std::span<const std::byte> content, int but) const {
    const Deadline until = deadline();
    for (const int r : others_) {
      if (r == but) continue;
      Progress progress = tcp::send_all(connection(r), bytes_of(header), until);
      if (progress == Progress::done) progress = tcp::send_all(connection(r), content, until);
      if (progress == Progress::closed) give_up("process ", r, " has ended");
      if (progress == Progress::late) give_up("process ", r, " has not taken what was sent to it within ", seconds_, " s");
    }
  }

  static std::span<const std::byte> content(const std::vector<Incoming>& messages, int rank) {
    return messages[static_cast<std::size_t>(rank)].after(sizeof(Header));
  }

  /// By rank, a message of each of these processes, which begins with `header`.
  std::vector<Incoming> collect(const std::vector<int>& from, const Header& header) const {
    std::vector<Incoming> messages(connections_.size(), Incoming(0));
    for (const int r : from) messages[static_cast<std::size_t>(r)] = Incoming(sizeof(Header) + header.bytes);
    const auto missing = [&] {
      std::vector<int> ranks;
      std::ranges::copy_if(from, std::back_inserter(ranks), [&](int r) { return !messages[static_cast<std::size_t>(r)].is_whole(); });
      return ranks;
    };
    const Deadline until = deadline();
    tcp::Signs signs(seconds_);
    for (std::vector<int> ranks = missing(); !ranks.empty(); ranks = missing()) {
      if (until.passed()) give_up(lost_text(ranks, seconds_));
      take_parts(messages, until, signs.interval(), header);
      signs.give(connections_);
    }
    return messages;
  }

  void take_parts(std::vector<Incoming>& messages, const Deadline& until, double most_seconds, const Header& header) const {
    std::vector<pollfd> polled;
    for (const int r : others_) {
      const bool expected = !messages[static_cast<std::size_t>(r)].is_whole();
      polled.push_back({connection(r).descriptor(), static_cast<short>(expected ? POLLIN : POLLRDHUP), 0});
    }
    tcp::poll_all(polled, until, most_seconds);
    for (const int r : others_) {
      Incoming& message = messages[static_cast<std::size_t>(r)];
      const short events = polled[static_cast<std::size_t>(r - 1)].revents;
      const bool lost = message.is_whole() ? (events & tcp::ended) != 0 : events != 0 && !message.take(connection(r));
      while (message.has(sizeof(Header)) && message.start<Header>().kind == Header::answer) message.skip(sizeof(Header));  // too late
      if (message.has(sizeof(Header))) check_same(r, message.start<Header>(), header);
      if (lost) give_up("process ", r, " has ended");
    }
  }

  std::vector<int> others_;
  tcp::Signs signs_{seconds_};
  std::uint64_t questions_ = 0;
};

class Other final : public TcpTransport {
 public:
  Other(const Launch& launch, double seconds) : TcpTransport(launch, seconds) {
    connections_.push_back(connect());
    const Hello hello{.rank = rank(), .size = size()};
    send(bytes_of(hello));
    const Header answer = receive_header();
    if (answer.kind != Header::begin) give_up("who listens there is no process of frit's");
  }

  void all_gather(const void* own, void* all, std::size_t bytes) override {
    const std::lock_guard lock(in_use_);
    const Header header = next(Header::gather, bytes);
    send(bytes_of(header));
    send(view(own, bytes));
    receive(header, all, bytes * static_cast<std::size_t>(size()));
  }

  void broadcast(void* data, std::size_t bytes, int root) override {
    const std::lock_guard lock(in_use_);
    const Header header = next(Header::broadcast, bytes);
    if (root != rank()) return receive(header, data, bytes);
    send(bytes_of(header));
    send(view(data, bytes));
  }

  void tell_that_it_waits() override {
    const std::unique_lock lock(in_use_, std::try_to_lock);
    if (lock.owns_lock()) (void)hears_first();
  }

  /// The first finds it out, unless it is the one.
  void find_lost(double waited, const std::function<bool()>& done) override {
    const std::lock_guard lock(in_use_);
    check_none_lost();
    for (std::optional<Deadline> until(roll_call_seconds); !until->passed(); std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      if (done()) return;
      if (hears_first()) until.emplace(roll_call_seconds);
    }
    lose_first(lost_text({0}, waited));
  }

 private:
  const Socket& first() const { return connections_.front(); }

  /// The first may come later than this process.
  Socket connect() const {
    const Deadline until = deadline();
    std::string why;
    do {
      Socket socket = tcp::connect_to(launch_.address, launch_.port, until, why);
      if (socket.is_open()) return socket;
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min(until.milliseconds(), 100)));
    } while (!until.passed());
    lose_first(concat("process 0 did not come within ", seconds_, " s: ", why));
  }

  void check(Progress progress) const {
    if (progress == Progress::closed) lose_first("process 0 has ended", /*listens=*/false);
    if (progress == Progress::late) lose_first(lost_text({0}, seconds_));
  }

  /// Those that wait for the first cannot tell each other that it is lost. They say so one after the other, unless whoever ends them all
  /// because of the one before sends a signal, or the first is heard or ended after all.
  [[noreturn]] void lose_first(const std::string& text, bool listens = true) const {
    constexpr int milliseconds_a_turn = 2000;
    pollfd polled = {listens && !connections_.empty() ? first().descriptor() : -1, POLLIN | POLLRDHUP, 0};
    const bool told = rank() > 1 && poll(&polled, 1, (rank() - 1) * milliseconds_a_turn) != 0;
    if (told) throw_told(lost_ = concat(description(), ": ", text));
    give_up(text);
  }

  /// What the first has said before it ended is still to be read.
  void send(std::span<const std::byte> bytes) const {
    const Progress progress = tcp::send_all(first(), bytes, deadline());
    if (progress == Progress::closed) (void)receive_header();
    check(progress);
  }

  Header read_header() const {
    Header header;
    check(tcp::receive_all(first(), std::as_writable_bytes(std::span(&header, 1)), deadline()));
    if (!header.is_frits()) give_up("who listens there is no process of frit's");
    if (header.kind == Header::question) {
      const Header answer{.kind = Header::answer, .call = header.call};
      (void)tcp::send_all(first(), bytes_of(answer), Deadline(0));
    }
    if (header.kind == Header::failure) {
      std::string text(header.bytes, '\0');
      check(tcp::receive_all(first(), std::as_writable_bytes(std::span(text)), deadline()));
      (void)shutdown(first().descriptor(), SHUT_RDWR);
      throw_told(lost_ = text);
    }
    return header;
  }

  static bool is_sign(const Header& header) { return header.kind == Header::wait || header.kind == Header::question; }

  /// Waits as long as the first says that it waits too.
  Header receive_header() const {
    Header header = read_header();
    while (is_sign(header)) header = read_header();
    return header;
  }

  /// Takes in what the first has said but for the result of a call that is still to be made; whether it said anything.
  bool hears_first() const {
    bool hears = false;
    for (Header header; tcp::peek(first(), std::as_writable_bytes(std::span(&header, 1))); hears = true) {
      if (!is_sign(header) && header.kind != Header::failure) break;
      (void)read_header();
    }
    return hears;
  }

  void receive(const Header& own, void* content, std::size_t bytes) const {
    check_same(0, receive_header(), own);
    check(tcp::receive_all(first(), {static_cast<std::byte*>(content), bytes}, deadline()));
  }
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(const Launch& launch, double seconds) {
  require(!launch.address.empty() && launch.port > 0, "MASTER_ADDR and MASTER_PORT must say where ", launch.size, " processes meet");
  if (launch.rank == 0) return std::make_unique<First>(launch, seconds);
  return std::make_unique<Other>(launch, seconds);
}

}  // namespace frit
