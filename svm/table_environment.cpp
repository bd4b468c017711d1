#include "svm/table_environment.hpp"

namespace svmsim::svm {

namespace {

/// The value that `table` holds for `key`, or `otherwise`.
template <typename Table, typename Value>
[[nodiscard]] Value value_or(const Table& table, const typename Table::key_type& key, Value otherwise) {
  const auto found = table.find(key);
  return found != table.end() ? found->second : otherwise;
}

/// Operand bytes of a port access keep this many bits.
[[nodiscard]] constexpr std::uint64_t size_mask(unsigned size) noexcept {
  return size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
}

}  // namespace

MsrAccess TableEnvironment::read_msr(std::uint32_t msr) {
  if (faulting_msrs.count(msr) != 0) return {true, 0};
  return {false, value_or(msrs, msr, std::uint64_t{0})};
}

MsrAccess TableEnvironment::write_msr(std::uint32_t msr, std::uint64_t value) {
  if (faulting_msrs.count(msr) != 0) return {true, 0};
  msrs[msr] = value;
  return {};
}

std::uint64_t TableEnvironment::read_port(std::uint16_t port, unsigned size) {
  return value_or(ports, port, std::uint64_t{0}) & size_mask(size);
}

void TableEnvironment::write_port(std::uint16_t port, unsigned size, std::uint64_t value) {
  ports[port] = value & size_mask(size);
}

std::array<std::uint32_t, 4> TableEnvironment::cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  return value_or(cpuid_leaves, {leaf, subleaf}, std::array<std::uint32_t, 4>{});
}

bool TableEnvironment::page_allows(std::uint64_t guest_physical, PageAccess access) {
  const NestedPage page = value_or(nested_pages, guest_physical >> 12, NestedPage{});
  // Nested page tables are walked as user accesses (15.25.5).
  if (!page.present || page.reserved_bit || !page.user) return false;
  if (access == PageAccess::write) return page.writable;
  return access != PageAccess::fetch || !page.no_execute;
}

NestedPage TableEnvironment::nested_page(std::uint64_t guest_physical) {
  return value_or(nested_pages, guest_physical >> 12, NestedPage{});
}

Vmcb* TableEnvironment::vmcb_page(std::uint64_t physical) {
  const auto found = vmcb_pages.find(physical);
  return found != vmcb_pages.end() ? &found->second : nullptr;
}

std::uint64_t TableEnvironment::handler_entry(std::uint8_t vector) {
  return value_or(handlers, vector, default_handler(vector));
}

const MsrPermissionMap& TableEnvironment::msr_permission_map(std::uint64_t physical) {
  const auto found = msr_maps.find(physical);
  return found != msr_maps.end() ? found->second : msr_map;
}

const IoPermissionMap& TableEnvironment::io_permission_map(std::uint64_t physical) {
  const auto found = io_maps.find(physical);
  return found != io_maps.end() ? found->second : io_map;
}

int TableEnvironment::acknowledge_physical_interrupt() {
  if (interrupts_pending.empty()) return -1;
  const int vector = interrupts_pending.front();
  interrupts_pending.erase(interrupts_pending.begin());
  return vector;
}

int TableEnvironment::avic_acknowledge() {
  const int vector = avic_pending();
  if (vector < 0) return -1;
  highest_irr = -1;
  ppr = static_cast<std::uint8_t>(vector & 0xf0);
  return vector;
}

std::uint8_t TableEnvironment::gate_privilege_level(std::uint8_t vector) {
  const auto found = gate_levels.find(vector);
  return found != gate_levels.end() ? found->second : GuestEnvironment::gate_privilege_level(vector);
}

}  // namespace svmsim::svm
