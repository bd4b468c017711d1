#pragma once

#include <cstdint>
#include <vector>

#include "svm/guest_action.hpp"

namespace svmsim::workloads {

/// Guest kernel code: actions with what their completion means to the source.
template <typename Meaning>
struct KernelCode {
  struct Item {
    svm::GuestAction action;
    Meaning meaning{};
  };

  std::vector<Item> items;

  void add(const svm::GuestAction& action, Meaning meaning = {}) { items.push_back({action, meaning}); }
  void append(const std::vector<svm::GuestAction>& actions) {
    for (const svm::GuestAction& action : actions)
      items.push_back({action, {}});
  }
  /// Code that no intercept can see. `flags`: of action_flags.
  void compute(std::uint64_t cycles, std::uint64_t rip, std::uint8_t flags = 0, Meaning meaning = {}) {
    svm::GuestAction action;
    action.kind = svm::ActionKind::compute;
    action.cycles = cycles;
    action.rip = rip;
    action.length = 16;
    action.flags = flags;
    add(action, meaning);
  }
  void instruction(svm::ActionKind kind, std::uint64_t rip, std::uint8_t length, Meaning meaning = {}) {
    svm::GuestAction action;
    action.kind = kind;
    action.rip = rip;
    action.length = length;
    add(action, meaning);
  }
};

}  // namespace svmsim::workloads
