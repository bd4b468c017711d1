#include "apic/avic/posted_interrupt.hpp"

namespace svmsim::apic {

bool GaLog::append(GaLogEntry entry) noexcept {
  const std::uint32_t next = (tail_ + 1) % entry_count;
  if (overflowed_ || next == head_) {
    overflowed_ = true;
    return false;
  }
  entries_[tail_] = entry;
  tail_ = next;
  return true;
}

std::optional<GaLogEntry> GaLog::take() noexcept {
  if (head_ == tail_) return std::nullopt;
  const GaLogEntry entry = entries_[head_];
  head_ = (head_ + 1) % entry_count;
  return entry;
}

void GaLog::restart() noexcept {
  head_ = 0;
  tail_ = 0;
  overflowed_ = false;
}

PostOutcome notify_posted(const Irte& irte, std::uint16_t device_id, GaLog& log) noexcept {
  if (irte.is_run()) return PostOutcome::doorbell;
  if (!irte.ga_log_intr()) return PostOutcome::recorded;
  return log.append(GaLogEntry::guest_not_running(irte.ga_tag(), device_id)) ? PostOutcome::logged
                                                                             : PostOutcome::log_overflow;
}

PostResult post_interrupt(const Irte& irte, std::uint16_t device_id, AvicMemory& memory,
                          GaLog& log) noexcept {
  if (!irte.remap_enable()) return {PostOutcome::aborted, false};
  if (!irte.guest_mode()) return {PostOutcome::remapped, false};
  if (irte.vector() < 16) return {PostOutcome::illegal_vector, false};
  BackingPage* page = memory.backing_pages.find(irte.backing_page());
  if (page == nullptr) return {PostOutcome::illegal_page, false};
  const bool merged = page->set_irr(irte.vector());
  return {notify_posted(irte, device_id, log), merged};
}

}  // namespace svmsim::apic
