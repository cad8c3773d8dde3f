#include "apps/common/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace frit::apps {
namespace {

volatile std::sig_atomic_t received = 0;
int adopted = 0;  // after which the first that comes here still ends nothing at once

void on_signal(int signal) {
  if (received != 0) _exit(128 + signal);
  received = signal;
}

void handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptRequests::InterruptRequests() { handle(on_signal); }

InterruptRequests::~InterruptRequests() { handle(SIG_DFL); }

int interrupt_signal() { return adopted != 0 ? adopted : received; }

void adopt_interrupt(int signal) { adopted = signal; }

const char* interrupt_name() { return interrupt_signal() == SIGTERM ? "SIGTERM" : "SIGINT"; }

}  // namespace frit::apps
