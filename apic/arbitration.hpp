#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace svmsim::apic {

/// Which one of the addressed APICs takes a lowest priority interrupt.
enum class ArbitrationPolicy : std::uint8_t {
  /// KVM with kvm.vector_hashing=Y, its default: the (vector mod n)-th of the n candidates, in index order.
  vector_hashing,
  /// KVM with kvm.vector_hashing=N: the one that has received the fewest lowest priority interrupts
  /// (apic_arb_prio), the first one if several have. Despite the name no priority counts.
  delivery_count,
  /// By the manual, and in Bochs: the one with the lowest TPR, the first one if several have.
  task_priority,
};

/// Lowest priority arbitration. Fact sheet 7.4; kvm_irq_delivery_to_apic and kvm_apic_map_get_dest_lapic in
/// arch/x86/kvm/lapic.c. Only software-enabled APICs are candidates. Not modelled: the focus processor.
class Arbiter {
 public:
  explicit Arbiter(std::size_t apics, ArbitrationPolicy policy = ArbitrationPolicy::vector_hashing)
      : policy_(policy), deliveries_(apics) {}

  [[nodiscard]] ArbitrationPolicy policy() const noexcept { return policy_; }

  /// The winner, or nothing. `for_each(visit)` calls visit(index) for each addressed APIC, the same ones each
  /// time; `task_priority(index)` is its TPR, or nothing if it is no candidate.
  template <typename ForEach, typename TaskPriority>
  std::optional<std::size_t> choose(std::uint8_t vector, ForEach&& for_each, TaskPriority&& task_priority) {
    std::size_t candidates = 0;
    std::optional<std::size_t> winner;
    std::uint64_t lowest = 0;
    for_each([&](std::size_t index) {
      const std::optional<std::uint8_t> priority = task_priority(index);
      if (!priority) return;
      ++candidates;
      const std::uint64_t rank =
          policy_ == ArbitrationPolicy::delivery_count ? deliveries_[index] : std::uint64_t{*priority};
      if (winner && rank >= lowest) return;
      winner = index;
      lowest = rank;
    });
    if (policy_ == ArbitrationPolicy::vector_hashing && candidates > 1) {
      std::size_t left = vector % candidates;
      winner.reset();
      for_each([&](std::size_t index) {
        if (winner || !task_priority(index)) return;
        if (left-- == 0) winner = index;
      });
    }
    if (winner) ++deliveries_[*winner];
    return winner;
  }

 private:
  ArbitrationPolicy policy_;
  std::vector<std::uint64_t> deliveries_;
};

}  // namespace svmsim::apic
