#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <thread>
#include <vector>

#include "frit/core/communication/tcp_message.h"
#include "frit/core/error.h"

// Threads stand in for processes, which share nothing but the connections.

namespace frit {
namespace {

using namespace std::chrono_literals;

struct Group {
  int size;
  double seconds = 20;
  std::string address = "127.0.0.1";
  int port = tcp::free_port();

  Launch launch(int rank) const { return {.rank = rank, .size = size, .address = address, .port = port}; }
  std::unique_ptr<Transport> join(int rank) const { return tcp_transport(launch(rank), seconds); }
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    return error.what();
  }
  return {};
}

/// Runs `body` of each rank in a thread of its own; returns what each threw.
std::vector<std::string> run_all(const std::vector<int>& ranks, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) threads.emplace_back([&, i] { errors[i] = error_of([&] { body(ranks[i]); }); });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> run_all(int size, const std::function<void(int rank)>& body) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return run_all(ranks, body);
}

/// A connection to the first of a group, made by hand.
tcp::Socket connection_to(const Group& group) {
  std::string why;
  tcp::Socket socket;
  for (const tcp::Deadline until(20); !socket.is_open() && !until.passed(); std::this_thread::sleep_for(10ms))
    socket = tcp::connect_to(group.address, group.port, until, why);
  EXPECT_TRUE(socket.is_open()) << why;
  return socket;
}

void send(const tcp::Socket& socket, std::span<const std::byte> bytes) {
  EXPECT_EQ(tcp::send_all(socket, bytes, tcp::Deadline(20)), tcp::Progress::done);
}

std::vector<int> gathered(Transport& transport, int own) {
  std::vector<int> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather(&own, all.data(), sizeof(int));
  return all;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(TcpTransport, GathersAndBroadcasts) {
  for (const char* address : {"127.0.0.1", "::1", "localhost"}) {
    const Group group{.size = 4, .address = address};
    const std::vector<std::string> errors = run_all(4, [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(20ms);  // the others find nobody at first
      const std::unique_ptr<Transport> transport = group.join(rank);
      EXPECT_EQ(transport->rank(), rank);
      EXPECT_EQ(transport->size(), 4);
      EXPECT_EQ(transport->description(), "TCP at " + tcp::place_text(address, group.port));
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(gathered(*transport, 10 * rank + i), (std::vector<int>{i, 10 + i, 20 + i, 30 + i}));
        std::array<int, 2> data = {rank, -rank};
        transport->broadcast(data.data(), sizeof(data), i % 4);
        EXPECT_EQ(data, (std::array<int, 2>{i % 4, -(i % 4)}));
      }
      transport->all_gather(nullptr, nullptr, 0);
      transport->broadcast(nullptr, 0, 2);
    });
    if (address == std::string("::1") && contains(errors[0], "cannot listen")) continue;  // no IPv6 here
    EXPECT_EQ(errors, std::vector<std::string>(4));
  }
}

TEST(TcpTransport, SendsWhatNoBufferHolds) {
  const Group group{.size = 3};
  constexpr std::size_t count = 3'000'000;
  const std::vector<std::string> errors = run_all(3, [&](int rank) {
    const std::unique_ptr<Transport> transport = group.join(rank);
    std::vector<int> own(count), all(3 * count);
    for (std::size_t i = 0; i < count; ++i) own[i] = static_cast<int>(i) * (rank + 1);
    transport->all_gather(own.data(), all.data(), count * sizeof(int));
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(all[r * count + count - 1], static_cast<int>((count - 1) * (r + 1)));
    transport->broadcast(own.data(), count * sizeof(int), 2);
    EXPECT_EQ(own[count - 1], static_cast<int>(3 * (count - 1)));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(TcpTransport, IsOfOneProcessToo) {
  const Group group{.size = 1};
  const std::unique_ptr<Transport> transport = group.join(0);
  EXPECT_EQ(gathered(*transport, 5), std::vector<int>{5});
}

TEST(TcpTransport, LeavesGradientsOfCpusToMpi) {
  const std::unique_ptr<Transport> transport = Group{.size = 1}.join(0);
  try {
    transport->all_to_all(nullptr, nullptr, 0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    EXPECT_TRUE(contains(error.what(), "mpirun -n 1")) << error.what();
  }
}

TEST(TcpTransport, GivesUpWhereNobodyListens) {
  const Group group{.size = 2, .seconds = 0.3};
  const std::string error = error_of([&] { (void)group.join(1); });
  EXPECT_EQ(error, "TCP at " + tcp::place_text(group.address, group.port) + ": process 0 did not come within 0.3 s: connection refused");
  const Group nowhere{.size = 2, .seconds = 0.1, .address = "no-such-host.invalid"};
  EXPECT_TRUE(contains(error_of([&] { (void)nowhere.join(1); }), "no-such-host.invalid")) << "the address";
  EXPECT_THROW((void)tcp_transport({.rank = 0, .size = 2}, 0.1), Error) << "no address";
}

TEST(TcpTransport, NamesWhoDidNotCome) {
  const Group group{.size = 4, .seconds = 2};
  for (const std::string& error : run_all({0, 2}, [&](int rank) { (void)group.join(rank); }))
    EXPECT_TRUE(contains(error, "processes 1, 3 of 4 did not come within 2 s")) << error;
}

TEST(TcpTransport, RefusesASecondProcessOfARank) {
  const Group group{.size = 3};
  const std::vector<std::string> errors = run_all({0, 1, 1}, [&](int rank) { (void)group.join(rank); });
  for (const std::string& error : errors) EXPECT_TRUE(contains(error, "there are two processes 1")) << error;
  const Group firsts{.size = 2};
  const tcp::Socket listener = tcp::listen_at(firsts.address, firsts.port);
  EXPECT_TRUE(contains(error_of([&] { (void)firsts.join(0); }), "cannot listen: address already in use"));
}

TEST(TcpTransport, RefusesProcessesOfAnotherGroup) {
  const Group group{.size = 3};
  const std::vector<std::string> errors = run_all({0, 1}, [&](int rank) {
    Launch launch = group.launch(rank);
    if (rank == 1) launch.size = 2;
    (void)tcp_transport(launch, 20);
  });
  for (const std::string& error : errors) EXPECT_TRUE(contains(error, "process 1 was started as one of 2, process 0 as one of 3")) << error;
}

TEST(TcpTransport, RefusesOtherVersions) {
  const Group group{.size = 2};
  const std::vector<std::string> errors = run_all({0, 1}, [&](int rank) {
    if (rank == 0) (void)group.join(0);
    if (rank == 1) send(connection_to(group), tcp::bytes_of(tcp::Hello{.protocol = 7, .rank = 1, .size = 2}));
  });
  EXPECT_TRUE(contains(errors[0], "process 1 is of another version of frit: it speaks protocol 7, process 0 2")) << errors[0];
}

TEST(TcpTransport, PassesOverStrangers) {
  const Group group{.size = 2};
  const std::vector<std::string> errors = run_all({0, 1, 2}, [&](int rank) {
    if (rank == 2) {
      const std::string request = "GET / HTTP/1.1\r\nHost: somebody\r\n\r\n";
      for (int i = 0; i < 5; ++i) send(connection_to(group), tcp::view(request.data(), request.size()));
      for (int i = 0; i < 5; ++i) send(connection_to(group), tcp::view(request.data(), 3));
      std::vector<tcp::Socket> silent;
      for (int i = 0; i < 200; ++i) silent.push_back(connection_to(group));
      EXPECT_EQ(gathered(*group.join(1), 1), (std::vector<int>{0, 1}));
    }
    if (rank == 0) {
      EXPECT_EQ(gathered(*group.join(0), 0), (std::vector<int>{0, 1}));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(TcpTransport, KnowsAListenerThatIsNotFrits) {
  const Group group{.size = 2};
  const tcp::Socket listener = tcp::listen_at(group.address, group.port);
  for (const bool speaks : {true, false}) {
    std::thread other([&] {
      tcp::Socket socket;
      while (!socket.is_open()) socket = tcp::accept_from(listener);
      const std::string greeting = "SSH-2.0-somebody's, which is longer than a header\r\n";
      if (speaks) send(socket, tcp::view(greeting.data(), greeting.size()));
      if (speaks) std::this_thread::sleep_for(50ms);
    });
    const std::string error = error_of([&] { (void)group.join(1); });
    other.join();
    EXPECT_TRUE(contains(error, speaks ? "who listens there is no process of frit's" : "process 0 has ended")) << error;
  }
}

TEST(TcpTransport, TellsAllWhoHasEnded) {
  for (const int lost : {0, 2}) {
    const Group group{.size = 4};
    const auto start = std::chrono::steady_clock::now();
    const std::vector<std::string> errors = run_all(4, [&](int rank) {
      const std::unique_ptr<Transport> transport = group.join(rank);
      EXPECT_EQ(gathered(*transport, rank), (std::vector<int>{0, 1, 2, 3}));
      if (rank == lost) return;
      if (rank == 1) std::this_thread::sleep_for(100ms);
      (void)gathered(*transport, rank);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "at once";
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      if (rank == lost)
        EXPECT_EQ(error, "");
      else
        EXPECT_TRUE(contains(error, "process " + std::to_string(lost) + " has ended")) << rank << ": " << error;
    }
  }
}

TEST(TcpTransport, DoesNotWaitForOthersOnceOneHasEnded) {
  const Group group{.size = 3};
  const std::vector<std::string> errors = run_all({0, 2}, [&](int rank) {
    if (rank == 0) (void)group.join(0);
    if (rank == 2) send(connection_to(group), tcp::bytes_of(tcp::Hello{.rank = 2, .size = 3}));
  });
  EXPECT_TRUE(contains(errors[0], "process 2 ended before all had come")) << errors[0];
}

TEST(TcpTransport, TellsAllWhoDoesNotAnswer) {
  for (const int silent : {0, 2}) {
    const Group group{.size = 3, .seconds = 2.4};
    const std::vector<std::string> errors = run_all(3, [&](int rank) {
      const std::unique_ptr<Transport> transport = group.join(rank);
      (void)gathered(*transport, rank);
      if (rank == silent) return std::this_thread::sleep_for(6s);
      if (rank == 0) std::this_thread::sleep_for(1200ms);  // who waits for it waits longer
      (void)gathered(*transport, rank);
    });
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      if (rank == silent) continue;
      EXPECT_TRUE(contains(error, "process " + std::to_string(silent) + " did not come within 2.4 s to what the other 2 wait for"))
          << rank << ": " << error;
    }
  }
}

/// As who waits for its GPU, for half a second and longer than it may.
void wait_elsewhere(Transport& transport, const std::function<bool()>& done) {
  for (int i = 0; i < 10; ++i, std::this_thread::sleep_for(50ms)) transport.tell_that_it_waits();
  transport.find_lost(0.5, done);
}

TEST(TcpTransport, FindsOutWhoDoesNotWait) {
  for (const int silent : {0, 2}) {
    const Group group{.size = 4};
    std::array<bool, 4> told{};
    const std::vector<std::string> errors = run_all(4, [&](int rank) {
      const std::unique_ptr<Transport> transport = group.join(rank);
      (void)gathered(*transport, rank);
      if (rank == silent) return std::this_thread::sleep_for(6500ms);
      try {
        if (rank == 3) (void)gathered(*transport, rank);  // waits as well
        wait_elsewhere(*transport, [] { return false; });
      } catch (const ProcessLost& lost) {
        told[static_cast<std::size_t>(rank)] = lost.told();
        throw;
      }
    });
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      if (rank == silent || (silent == 0 && rank == 3)) continue;  // its limit is longer
      EXPECT_TRUE(contains(error, "process " + std::to_string(silent) + " did not come within 0.5 s to what the other 3 wait for"))
          << error;
    }
    EXPECT_EQ(told, (silent == 0 ? std::array{false, false, true, false} : std::array{false, true, false, true})) << "one speaks";
  }
}

TEST(TcpTransport, GoesOnAsSoonAsAllHaveCome) {
  const Group group{.size = 3};
  const std::vector<std::string> errors = run_all(3, [&](int rank) {
    const std::unique_ptr<Transport> transport = group.join(rank);
    for (int i = 0; i < 3; ++i) {
      const auto start = std::chrono::steady_clock::now();
      wait_elsewhere(*transport, [&] { return std::chrono::steady_clock::now() - start > (rank == i ? 600ms : 1s); });
      EXPECT_EQ(gathered(*transport, rank), (std::vector<int>{0, 1, 2}));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(TcpTransport, TellsAllOfCallsThatDiffer) {
  const Group group{.size = 3};
  const std::vector<std::string> errors = run_all(3, [&](int rank) {
    const std::unique_ptr<Transport> transport = group.join(rank);
    std::array<std::byte, 16> own{};
    std::array<std::byte, 48> all{};
    transport->all_gather(own.data(), all.data(), rank == 2 ? 16 : 8);
  });
  for (const std::string& error : errors)
    EXPECT_TRUE(contains(error, "process 2 gathers 16 bytes in its call 1, process 0 gathers 8 bytes in its call 1")) << error;
}

TEST(TcpTransport, AbortEndsAllProcesses) {
  const Group group{.size = 3};
  std::vector<pid_t> processes;
  for (const int rank : {1, 2}) {
    const pid_t process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      const std::string error = error_of([&] {
        const std::unique_ptr<Transport> transport = group.join(rank);
        if (rank == 1) transport->abort();
        (void)gathered(*transport, rank);
      });
      std::_Exit(contains(error, "process 1 has ended") ? 3 : 4);
    }
    processes.push_back(process);
  }
  const std::string error = error_of([&] { (void)gathered(*group.join(0), 0); });
  EXPECT_TRUE(contains(error, "process 1 has ended")) << error;
  for (std::size_t i = 0; i < 2; ++i) {
    int status = 0;
    ASSERT_EQ(waitpid(processes[i], &status, 0), processes[i]);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), i == 0 ? 5 : 3);
  }
}

}  // namespace
}  // namespace frit
