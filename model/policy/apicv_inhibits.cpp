#include "model/policy/apicv_inhibits.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace svmsim::model {

namespace {

constexpr std::array<std::string_view, ApicvInhibits::reasons> names{"disabled",
                                                                     "hyperv",
                                                                     "absent",
                                                                     "blockirq",
                                                                     "physical_id_aliased",
                                                                     "apic_id_modified",
                                                                     "apic_base_modified",
                                                                     "nested",
                                                                     "irqwin",
                                                                     "pit_reinj",
                                                                     "sev",
                                                                     "logical_id_aliased",
                                                                     "physical_id_too_big",
                                                                     "x2apic"};

/// KVM_APIC_MODE_*: the one logical mode that all APICs must have.
enum class LogicalMode : std::uint8_t { none, x2apic, flat, cluster };

LogicalMode logical_mode(const apic::ApicAddress& address) {
  if (address.mode == apic::ApicMode::x2apic) return LogicalMode::x2apic;
  return address.destination_format == 0xf ? LogicalMode::flat : LogicalMode::cluster;
}

// kvm_recalculate_logical_map.
bool logical_ids_aliased(const std::vector<ApicMapEntry>& apics) {
  LogicalMode mode = LogicalMode::none;
  std::set<std::pair<unsigned, unsigned>> taken;  // cluster, bit
  for (const ApicMapEntry& apic : apics) {
    const apic::ApicAddress& address = apic.address;
    if (address.mode == apic::ApicMode::disabled || !apic.software_enabled) continue;
    const LogicalMode own = logical_mode(address);
    if (own != LogicalMode::x2apic && address.xapic_logical_id == 0) continue;
    if (mode != LogicalMode::none && mode != own) return true;
    mode = own;
    if (own == LogicalMode::x2apic) continue;  // derived from the ID
    const unsigned id = address.xapic_logical_id;
    const unsigned cluster = own == LogicalMode::flat ? 0 : id >> 4;
    const unsigned bits = own == LogicalMode::flat ? id : id & 0xfU;
    if (bits == 0) continue;
    if ((bits & (bits - 1)) != 0 || !taken.emplace(cluster, bits).second) return true;
  }
  return false;
}

}  // namespace

std::string_view inhibit_name(ApicvInhibitReason reason) {
  return names[static_cast<std::size_t>(reason)];
}

std::optional<ApicvInhibitReason> inhibit_of(std::string_view name) {
  const auto* found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<ApicvInhibitReason>(found - names.begin());
}

bool ApicvInhibits::set(ApicvInhibitReason reason, bool on, std::uint64_t now_cycles) {
  const std::uint64_t before = bitmap_;
  const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(reason);
  Record& record = records_[static_cast<std::size_t>(reason)];
  if (on && (before & bit) == 0) {
    if (now_cycles >= warmup_cycles_) ++record.count;
    record.since = now_cycles;
  } else if (!on && (before & bit) != 0 && now_cycles > warmup_cycles_) {
    if (record.since < warmup_cycles_) ++record.count;
    record.time += now_cycles - std::max(record.since, warmup_cycles_);
  }
  bitmap_ = on ? before | bit : before & ~bit;
  return (before == 0) != (bitmap_ == 0);
}

std::vector<ApicvInhibits::Row> ApicvInhibits::rows(std::uint64_t end_cycles) const {
  std::vector<Row> result;
  for (std::size_t i = 0; i < reasons; ++i) {
    Row row{static_cast<ApicvInhibitReason>(i), records_[i].count, records_[i].time};
    if (has(row.reason)) {
      const std::uint64_t from = std::max(records_[i].since, warmup_cycles_);
      if (records_[i].since < warmup_cycles_) ++row.count;
      if (end_cycles > from) row.time_cycles += end_cycles - from;
    }
    if (row.count != 0) result.push_back(row);
  }
  return result;
}

ApicMapProblems apic_map_problems(const std::vector<ApicMapEntry>& apics) {
  ApicMapProblems problems;
  std::set<std::uint32_t> physical;
  for (const ApicMapEntry& apic : apics) {
    const apic::ApicAddress& address = apic.address;
    if (address.mode == apic::ApicMode::disabled) continue;
    const bool x2apic = address.mode == apic::ApicMode::x2apic;
    // The ID is cut to eight bits on purpose: one that wraps shows as an alias, if it meets another.
    if (!x2apic && address.xapic_id != static_cast<std::uint8_t>(address.id))
      problems.apic_id_modified = true;
    if (!physical.insert(x2apic ? address.id : address.xapic_id).second) problems.physical_id_aliased = true;
  }
  // Without a map by physical ID there is none by logical ID either.
  problems.logical_id_aliased = problems.physical_id_aliased || logical_ids_aliased(apics);
  return problems;
}

}  // namespace svmsim::model
