#pragma once

#include <cstddef>
#include <cstdint>

#include "model/policy/sched_entity.hpp"

namespace svmsim::model {

/// An ordered set of entities, intrusive, by a signed key and the order of insertion; every operation costs
/// the logarithm of the size. Each node knows the least vruntime below it, which EEVDF's pick needs.
///
/// A treap: its shape comes from the number of insertions, never from addresses, so that runs are alike.
class FairTree {
 public:
  using Key = std::int64_t SchedEntity::*;

  explicit FairTree(Key key) : key_(key) {}

  void insert(SchedEntity& entity);
  void erase(SchedEntity& entity);

  [[nodiscard]] bool empty() const noexcept { return root_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] SchedEntity* root() const noexcept { return root_; }
  /// Smallest key; nullptr when empty.
  [[nodiscard]] SchedEntity* first() const noexcept;
  /// The one after the first; nullptr when there is none.
  [[nodiscard]] SchedEntity* second() const noexcept;
  /// Greatest key; nullptr when empty.
  [[nodiscard]] SchedEntity* last() const noexcept;

 private:
  [[nodiscard]] bool before(const SchedEntity& a, const SchedEntity& b) const noexcept {
    return a.*key_ != b.*key_ ? a.*key_ < b.*key_ : a.order < b.order;
  }
  SchedEntity* merge(SchedEntity* left, SchedEntity* right);
  void split(SchedEntity* tree, const SchedEntity& at, SchedEntity*& left, SchedEntity*& right);
  SchedEntity* remove(SchedEntity* tree, const SchedEntity& entity);

  Key key_;
  SchedEntity* root_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t next_order_ = 0;
};

}  // namespace svmsim::model
