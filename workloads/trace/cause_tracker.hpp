#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "workloads/trace/replay_workload.hpp"
#include "workloads/trace/trace_sink.hpp"
#include "workloads/trace/vcpu_threads.hpp"

namespace svmsim::workloads {

/// Who caused an interrupt or a wake-up, and what says so. Lines are those of ReadEvent; 0 = not recorded.
struct Cause {
  InterruptCause kind = InterruptCause::unknown;
  std::int32_t sender = -1;       ///< vCPU that sent an IPI
  std::uint64_t accept_line = 0;  ///< the event that accepted the interrupt
  std::uint64_t source_line = 0;  ///< the IPI, the write that armed the timer, the line or the MSI
  bool closed_loop = false;       ///< a device's: the guest had accessed a device since its last interrupt
};

/// Finds the causes of interrupts and wake-ups while events stream by, in constant memory.
///
/// An injection (kvm_inj_virq, and under AVIC or APICv kvm_apicv_accept_irq) has the cause of the last
/// kvm_apic_accept_irq of its vector at that LAPIC. What was accepted comes from the source that the same
/// thread named last: kvm_apic_ipi or KVM_HC_SEND_IPI of the same exit (6.18 prints the IPI behind the
/// acceptance), kvm_msi_set_irq with that vector (decimal or hexadecimal, both are met), kvm_set_irq of a
/// line. Without a source it is the LAPIC timer's when the vector is that of LVTT, or when LVTT was not
/// recorded but the timer was armed and no other sender is in sight; else it is unknown. A PIC interrupt is
/// told by its pin. A wake-up (kvm_vcpu_wakeup) has the cause of what was accepted since the HLT, or, for a
/// timer that is injected after it, before the next kvm_entry; a wake-up without one whose waker is known
/// from sched_waking is the host's. A device interrupt is of a closed loop when its VM has accessed a device
/// (port, MMIO) since the last one from the same line or message: an answer to a request.
class CauseTracker {
 public:
  /// A finding. It may come later than its event: when the vCPU exits again.
  struct Finding {
    bool wakeup = false;
    std::size_t stream = 0;
    std::uint64_t token = 0;  ///< of the event
    Cause cause;
  };

  explicit CauseTracker(const VcpuThreads& threads) : threads_(threads) {}

  /// `stream` is what VcpuThreads says of the event; `token` comes back in its finding.
  void event(const ReadEvent& read, std::size_t stream, std::uint64_t token);
  /// Nothing more comes: what is still open is settled.
  void finish();
  /// What has been found since the last call.
  std::vector<Finding>& findings() noexcept { return findings_; }

  /// Whether the text of events of this name matters here.
  [[nodiscard]] static bool wants_text(std::string_view event_name);

 private:
  enum class SourceKind : std::uint8_t { ipi, msi, line };
  struct Source {
    SourceKind kind = SourceKind::ipi;
    int vector = -1;
    int other_vector = -1;  ///< of an MSI: the same digits in the other base
    std::uint64_t line = 0;
    std::uint64_t id = 0;  ///< GSI
  };
  /// One thread between two of its kvm_entry lines.
  struct Context {
    std::vector<Source> sources;
    std::vector<std::uint64_t> open_accepts;  ///< keys of acceptances that an IPI may still follow
  };
  struct Accept {
    Cause cause;
    std::uint64_t serial = 0;
    std::size_t sender = VcpuThreads::none;  ///< stream that sent the IPI
    bool learned_timer = false;
  };
  struct Timer {
    int vector = -1;
    bool known = false;  ///< LVTT was recorded
    bool learned = false;
    bool masked = false;
    bool periodic = false;
    bool armed = false;
    std::uint64_t line = 0;
  };
  struct Injection {
    std::uint64_t key = 0;
    std::uint64_t serial = 0;
    std::uint64_t token = 0;
    Cause cause;
    std::size_t sender = VcpuThreads::none;
  };
  struct Vcpu {
    Context context;
    Timer timer;
    std::vector<Injection> injections;
    std::uint64_t halted_line = 0;
    std::uint64_t last_accept_key = 0;
    std::uint64_t last_accept_line = 0;
    bool waking = false;
    std::uint64_t wake_token = 0;
    bool waker_known = false;
  };
  struct Pin {
    std::uint64_t line = 0;
    bool raised = false;
  };

  Vcpu& vcpu(std::size_t stream);
  Context& context_of(const ReadEvent& read, std::size_t stream);
  [[nodiscard]] static std::uint64_t key_of(int vm, std::uint64_t vcpu, std::uint64_t vector) noexcept;
  [[nodiscard]] std::size_t stream_of(int vm, std::uint64_t vcpu) const;
  void ipi(const ReadEvent& read, std::size_t stream, int vector);
  void accept(const ReadEvent& read, std::size_t stream);
  void accept_at(const ReadEvent& read, int vm, Context& context, std::size_t sender, bool ambiguous);
  void blame(Accept& accept, const Source& source, int vm, std::size_t sender);
  [[nodiscard]] Cause settled(Cause cause, std::size_t sender, std::size_t receiver) const;
  bool timer_fires(Timer& timer, int vector, Cause& cause, bool& learned);
  void injection(const ReadEvent& read, std::size_t stream, std::uint64_t token);
  void settle_injections(std::size_t stream);
  void wakeup(std::size_t stream, std::uint64_t token);
  void settle_wakeup(std::size_t stream);
  void timer_write(std::size_t stream, const ReadEvent& read);
  void other(const ReadEvent& read, std::size_t stream);
  void device_access(std::size_t stream);

  const VcpuThreads& threads_;
  std::vector<Vcpu> vcpus_;
  std::unordered_map<std::int32_t, Context> foreign_;  ///< threads that run no guest
  std::unordered_map<std::uint64_t, Accept> accepts_;
  std::unordered_map<std::uint64_t, std::uint64_t> device_seen_;  ///< accesses at a source's last interrupt
  std::unordered_map<int, std::uint64_t> device_accesses_;        ///< of a VM
  std::array<Pin, 16> pins_{};
  std::uint64_t serial_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace svmsim::workloads
