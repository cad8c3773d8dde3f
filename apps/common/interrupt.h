#pragma once

namespace frit::apps {

/// While one lives, the first SIGINT or SIGTERM only asks the work to end; a second one ends the process at once.
class InterruptRequests {
 public:
  InterruptRequests();
  ~InterruptRequests();
  InterruptRequests(const InterruptRequests&) = delete;
  InterruptRequests& operator=(const InterruptRequests&) = delete;
};

/// The signal that came, or 0.
int interrupt_signal();
/// Takes a signal that another process of the run was sent for one that came here.
void adopt_interrupt(int signal);
/// "SIGINT", "SIGTERM".
const char* interrupt_name();

}  // namespace frit::apps
