#include "apic/destination.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "svm/user_error.hpp"

namespace svmsim::apic {

DestinationMap::DestinationMap(std::vector<std::uint32_t> ids) : ids_(std::move(ids)), by_id_(ids_.size()) {
  std::iota(by_id_.begin(), by_id_.end(), 0U);
  std::sort(by_id_.begin(), by_id_.end(),
            [this](std::uint32_t a, std::uint32_t b) { return ids_[a] < ids_[b]; });
  for (std::size_t i = 1; i < by_id_.size(); ++i) {
    if (ids_[by_id_[i - 1]] == ids_[by_id_[i]]) {
      throw InternalError(fmt::format("APIC ID {} is used twice in one machine", ids_[by_id_[i]]));
    }
  }
}

std::int32_t DestinationMap::index_of(std::uint32_t id) const noexcept {
  // Almost every machine numbers its APICs 0, 1, 2, ...
  if (id < ids_.size() && ids_[id] == id) return static_cast<std::int32_t>(id);
  const auto found =
      std::lower_bound(by_id_.begin(), by_id_.end(), id,
                       [this](std::uint32_t index, std::uint32_t key) { return ids_[index] < key; });
  if (found == by_id_.end() || ids_[*found] != id) return -1;
  return static_cast<std::int32_t>(*found);
}

std::vector<std::size_t> DestinationMap::targets(const IcrCommand& command, std::size_t sender) const {
  std::vector<std::size_t> result;
  for_each_target(command, sender, [&result](std::size_t index) { result.push_back(index); });
  return result;
}

}  // namespace svmsim::apic
