#pragma once

#include <cstdint>

#include "model/policy/haltpoll_governor.hpp"

namespace svmsim::model {

/// What the guest does when it has nothing to run (kvm-software.md 3, 11.1).
enum class GuestIdle : std::uint8_t {
  hlt,          ///< no cpuidle driver: STI; HLT
  haltpoll,     ///< cpuidle-haltpoll: polls up to an adaptive limit, then HLT
  cpuidle_kvm,  ///< the driver proposed in 2019: polls a fixed time, then HLT
  poll,         ///< idle=poll: never halts
};

/// The guest kernel's own configuration, for task sets.
struct GuestOsConfig {
  GuestIdle idle = GuestIdle::hlt;
  HaltpollParameters haltpoll;
  unsigned hz = 250;
  std::uint64_t timer_slack_ns = 50'000;
  /// Seconds of kernel.watchdog_thresh; each CPU has a timer of two fifths of it (kernel/watchdog.c). 0 =
  /// none.
  unsigned watchdog_thresh = 10;
};

/// Guest kernel code, in TSC cycles. A cost profile gives them (host.cost.g_*).
struct GuestKernelCosts {
  std::uint64_t irq = 1;        ///< interrupt entry to the handler's work, with irq_exit
  std::uint64_t timer = 1;      ///< hrtimer_interrupt, on top
  std::uint64_t schedule = 1;   ///< __schedule and the switch
  std::uint64_t syscall = 1;    ///< entry, exit and work of a system call that does not sleep
  std::uint64_t wake = 1;       ///< try_to_wake_up
  std::uint64_t idle = 1;       ///< do_idle: twice between its top and the HLT
  std::uint64_t idle_exit = 1;  ///< behind the HLT, until the loop has looked
};

}  // namespace svmsim::model
