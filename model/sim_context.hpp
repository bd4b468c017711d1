#pragma once

#include <memory>

namespace svmsim::model {

/// Owns one SystemC simulation context, so that many simulations can run after each other in one process.
/// The one file that touches SystemC's globals. Two contexts at a time are refused: a second simulation needs
/// a second process (design.md section 2). Modules must be destroyed before their context.
class SimContext {
 public:
  SimContext();
  SimContext(const SimContext&) = delete;
  SimContext& operator=(const SimContext&) = delete;
  ~SimContext();
};

}  // namespace svmsim::model
