#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace svmsim::workloads {

// Words that the kernel prints inside event texts, for the writer and the reader alike.

/// Delivery mode 0..7 as kvm_apic_ipi and kvm_apic_accept_irq print it ("Fixed", "LowPrio", ...).
[[nodiscard]] std::string_view delivery_mode_name(unsigned mode);
[[nodiscard]] std::optional<unsigned> delivery_mode_of(std::string_view name);

/// Destination shorthand 0..3 ("dst", "self", "all", "all-but-self").
[[nodiscard]] std::string_view shorthand_name(unsigned shorthand);
[[nodiscard]] std::optional<unsigned> shorthand_of(std::string_view name);

/// Type 0..2 of kvm_mmio ("unsatisfied-read", "read", "write").
[[nodiscard]] std::string_view mmio_type_name(unsigned type);

/// "#GP" for an exception vector; empty for a vector that the kernel has no name for.
[[nodiscard]] std::string_view exception_name(unsigned vector);
[[nodiscard]] std::optional<unsigned> exception_of(std::string_view name);

/// "KVM_EXIT_IO"; empty for a reason without a name.
[[nodiscard]] std::string_view userspace_exit_name(std::uint64_t reason);

/// Reasons for which KVM inhibits AVIC (arch/x86/include/asm/kvm_host.h, enum kvm_apicv_inhibit), by bit
/// number, as kvm_apicv_inhibit_changed prints them ("PIT_REINJ"), and behind them X2APIC, the rule of 2021;
/// empty for a bit without a name.
[[nodiscard]] std::string_view apicv_inhibit_name(unsigned bit);
inline constexpr unsigned apicv_inhibit_count = 14;

/// Scheduler states of sched_switch: up to eight ASCII letters in a word, the first in the lowest byte.
[[nodiscard]] std::uint64_t pack_letters(std::string_view letters);
[[nodiscard]] std::string unpack_letters(std::uint64_t packed);

}  // namespace svmsim::workloads
