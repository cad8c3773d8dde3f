#include <algorithm>

#include "frit/core/communication/tcp_message.h"
#include "frit/core/error.h"

namespace frit::tcp {
namespace {

class Meeting {
 public:
  Meeting(const Launch& launch, double seconds)
      : launch_(launch),
        seconds_(seconds),
        listener_(listen_at(launch.address, launch.port)),
        joined_(static_cast<std::size_t>(launch.size)) {}

  std::vector<Socket> run() {
    try {
      const Deadline until(seconds_);
      for (std::vector<int> missing = absent(); !missing.empty(); missing = absent()) {
        if (until.passed()) give_up(processes_text(missing), " of ", launch_.size, " did not come within ", seconds_, " s");
        wait(until);
        signs_.give(joined_);
        take_arrivals();
      }
    } catch (const Error& error) {
      send_failure(joined_, error.what());
      throw;
    }
    for (std::size_t r = 1; r < joined_.size(); ++r) (void)send_all(joined_[r], bytes_of(Header()), Deadline(0));
    return std::move(joined_);
  }

 private:
  struct Arrival {
    Socket socket;
    Incoming hello{sizeof(Hello)};
  };

  template <class... Parts>
  [[noreturn]] void give_up(const Parts&... parts) const {
    throw ProcessLost(concat(meeting_text(launch_), ": ", parts...));
  }

  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int r = 1; r < launch_.size; ++r) {
      if (!joined_[static_cast<std::size_t>(r)].is_open()) ranks.push_back(r);
    }
    return ranks;
  }

  void wait(const Deadline& until) {
    std::vector<pollfd> polled;
    for (const Socket& socket : joined_) polled.push_back({socket.descriptor(), POLLRDHUP, 0});  // poll passes over none
    for (const Arrival& arrival : arrivals_) polled.push_back({arrival.socket.descriptor(), POLLIN, 0});
    polled.push_back({listener_.descriptor(), POLLIN, 0});
    poll_all(polled, until, signs_.interval());
    for (std::size_t r = 1; r < joined_.size(); ++r) {
      if ((polled[r].revents & ended) != 0) give_up("process ", r, " ended before all had come");
    }
  }

  void take_arrivals() {
    while (true) {
      Socket socket = accept_from(listener_);
      if (!socket.is_open()) break;
      arrivals_.push_back({std::move(socket)});
    }
    // A process of frit's speaks at once: whoever is silent makes room.
    const std::size_t most = 64 + joined_.size();
    if (arrivals_.size() > most) arrivals_.erase(arrivals_.begin(), arrivals_.end() - static_cast<std::ptrdiff_t>(most));
    std::erase_if(arrivals_, [&](Arrival& arrival) {
      if (!arrival.hello.take(arrival.socket)) return true;
      if (!arrival.hello.is_whole()) return false;
      const Hello hello = arrival.hello.start<Hello>();
      if (hello.magic == Hello::frits) join(hello, std::move(arrival.socket));
      return true;
    });
  }

  std::string refusal(const Hello& hello) const {
    if (hello.protocol != Hello::current_protocol)
      return concat("process ", hello.rank, " is of another version of frit: it speaks protocol ", hello.protocol, ", process 0 ",
                    Hello::current_protocol);
    if (hello.size != launch_.size)
      return concat("process ", hello.rank, " was started as one of ", hello.size, ", process 0 as one of ", launch_.size);
    const bool fits = hello.rank > 0 && hello.rank < launch_.size;
    return fits && !joined_[static_cast<std::size_t>(hello.rank)].is_open() ? "" : concat("there are two processes ", hello.rank);
  }

  void join(const Hello& hello, Socket socket) {
    const std::string why = refusal(hello);
    if (why.empty()) {
      joined_[static_cast<std::size_t>(hello.rank)] = std::move(socket);
    } else {
      joined_.push_back(std::move(socket));  // is told too
      give_up(why);
    }
  }

  const Launch& launch_;
  double seconds_;
  Socket listener_;
  std::vector<Socket> joined_;  // by rank
  Signs signs_{seconds_};
  std::vector<Arrival> arrivals_;
};

}  // namespace

std::vector<Socket> meet(const Launch& launch, double seconds) { return Meeting(launch, seconds).run(); }

}  // namespace frit::tcp
