#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "workloads/guest/guest_platform.hpp"

namespace svmsim::workloads {

/// What the sender does in one iteration.
enum class IpiTest : std::uint8_t {
  dry_run,    ///< reads the clock twice
  self,       ///< smp_call_function_single to itself: a direct call, no IPI
  normal,     ///< smp_call_function_single to CPU 1, and waits for it
  broadcast,  ///< smp_call_function_many to `fan_out` CPUs, and waits for all of them
  send,       ///< sends the reschedule vector to CPU 1; times the sending alone
};

/// What the CPUs do that are called.
enum class IpiTarget : std::uint8_t {
  busy,  ///< computes, with interrupts on
  poll,  ///< idle=poll: PAUSE in a loop
  halt,  ///< idle: STI; HLT
};

struct IpiBenchmarkSpec {
  IpiTest test = IpiTest::normal;
  IpiTarget target = IpiTarget::poll;
  std::uint64_t iterations = 100000;
  unsigned fan_out = 1;
  std::uint64_t gap_cycles = 0;       ///< computing between two iterations
  bool polling_needs_no_ipi = false;  ///< call_function_single_prep_ipi, kernels since 5.8
};

/// Cycle counts, each within 1/128 of itself; sum, least and greatest exactly.
class CycleHistogram {
 public:
  void add(std::uint64_t cycles);
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] double mean() const noexcept {
    return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }
  /// Nearest rank; `share` in tenths of a per cent.
  [[nodiscard]] std::uint64_t quantile(std::uint64_t share) const;

 private:
  static constexpr unsigned precision_bits = 7;
  static constexpr unsigned groups = 64 - precision_bits;

  std::array<std::uint64_t, (groups + 1) << precision_bits> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t least_ = ~std::uint64_t{0};
  std::uint64_t greatest_ = 0;
};

/// Memory that the CPUs of the benchmark share: their call-function queues, the waiting sender, the end.
/// A store at `tsc` is visible to others from tsc + line on.
struct IpiBenchmarkMemory {
  explicit IpiBenchmarkMemory(unsigned cpus) : queued_at(cpus, nothing), others(cpus - 1), pv(cpus) {
    for (unsigned i = 0; i < others.size(); ++i)
      others[i] = i + 1;
  }

  static constexpr std::uint64_t nothing = WorkloadSource::never_ready;

  std::vector<std::uint64_t> queued_at;  ///< when a call for this CPU becomes visible to it
  std::vector<unsigned> others;          ///< every CPU but the sender
  std::vector<PvMemory*> pv;             ///< what KVM writes for each CPU
  std::uint64_t started_at = 0;          ///< ktime_get() before the call
  unsigned outstanding = 0;              ///< targets whose csd is locked
  std::uint64_t completed_at = 0;        ///< the last csd_unlock becomes visible to the sender
  unsigned booting = 0;                  ///< CPUs that are not set up yet
  std::uint64_t booted_at = 0;
  std::uint64_t done_at = nothing;  ///< the sender's end becomes visible
  CycleHistogram latency;           ///< start to callback
};

/// Yury Norov's IPI benchmark (ipi_benchmark.c, posted with the series that measured it; measurements.md 1.3,
/// C-07), and the send-only loop of C-05: CPU 0 calls a function on other CPUs in a loop, through the APIC
/// driver of the guest, and looks when it has run there.
///
/// CPUs behind the fan-out compute until the sender is done; pinned to the pCPU of a target they preempt it.
/// Modelled of kernel/smp.c: the csd queue, its lock and the wait, IPIs only for queues that were empty. Left
/// out: the guest's own scheduler, tick and clock sources.
class IpiBenchmark final : public GuestVm {
 public:
  IpiBenchmark(const IpiBenchmarkSpec& spec, const GuestPlatform& platform);

  [[nodiscard]] std::unique_ptr<WorkloadSource> source(unsigned vcpu) override;

  [[nodiscard]] static ProgramInfo info();
  /// Throws UserError when a parameter is wrong or does not fit the platform.
  [[nodiscard]] static IpiBenchmarkSpec parse(const WorkloadSpec& spec, const GuestPlatform& platform);

 private:
  IpiBenchmarkSpec spec_;
  GuestPlatform platform_;
  std::shared_ptr<IpiBenchmarkMemory> memory_;
};

}  // namespace svmsim::workloads
