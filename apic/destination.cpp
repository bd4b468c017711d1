#include "apic/destination.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "svm/user_error.hpp"

namespace svmsim::apic {

namespace {

std::vector<ApicAddress> in_x2apic_mode(const std::vector<std::uint32_t>& ids) {
  std::vector<ApicAddress> addresses;
  addresses.reserve(ids.size());
  for (const std::uint32_t id : ids)
    addresses.push_back({ApicMode::x2apic, id, static_cast<std::uint8_t>(id), 0, 0xf});
  return addresses;
}

}  // namespace

DestinationMap::DestinationMap(const std::vector<std::uint32_t>& ids)
    : DestinationMap(in_x2apic_mode(ids), 0) {}

DestinationMap::DestinationMap(std::vector<ApicAddress> addresses, int /*by address*/)
    : addresses_(std::move(addresses)), by_id_(addresses_.size()) {
  sort_ids();
  classify();
}

void DestinationMap::sort_ids() {
  std::iota(by_id_.begin(), by_id_.end(), 0U);
  std::sort(by_id_.begin(), by_id_.end(), [this](std::uint32_t a, std::uint32_t b) { return id(a) < id(b); });
  for (std::size_t i = 1; i < by_id_.size(); ++i) {
    if (id(by_id_[i - 1]) == id(by_id_[i])) {
      throw InternalError(fmt::format("APIC ID {} is used twice in one machine", id(by_id_[i])));
    }
  }
  ids_ascend_ = std::is_sorted(by_id_.begin(), by_id_.end()) &&
                (by_id_.empty() || id(by_id_.back()) < std::uint32_t{1} << 20);
}

void DestinationMap::classify() {
  const auto all = [this](ApicMode mode) {
    return std::all_of(addresses_.begin(), addresses_.end(),
                       [mode](const ApicAddress& address) { return address.mode == mode; });
  };
  all_x2apic_ = all(ApicMode::x2apic);
  all_xapic_ = all(ApicMode::xapic);
  by_xapic_id_.fill(nobody);
  for (std::size_t index = 0; index < addresses_.size(); ++index) {
    std::int32_t& entry = by_xapic_id_[addresses_[index].xapic_id];
    entry = entry == nobody ? static_cast<std::int32_t>(index) : several;
  }
}

void DestinationMap::update(std::size_t index, const ApicAddress& address) {
  if (address.id != id(index)) {
    throw InternalError(fmt::format("APIC ID {} turned into {}", id(index), address.id));
  }
  if (address == addresses_[index]) return;
  addresses_[index] = address;
  classify();
}

std::int32_t DestinationMap::index_of(std::uint32_t id) const noexcept {
  // Almost every machine numbers its APICs 0, 1, 2, ...
  if (id < addresses_.size() && addresses_[id].id == id) return static_cast<std::int32_t>(id);
  const auto found =
      std::lower_bound(by_id_.begin(), by_id_.end(), id,
                       [this](std::uint32_t index, std::uint32_t key) { return addresses_[index].id < key; });
  if (found == by_id_.end() || addresses_[*found].id != id) return -1;
  return static_cast<std::int32_t>(*found);
}

std::vector<std::size_t> DestinationMap::targets(const IcrCommand& command, std::size_t sender) const {
  std::vector<std::size_t> result;
  for_each_target(command, sender, [&result](std::size_t index) { result.push_back(index); });
  return result;
}

}  // namespace svmsim::apic
