#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace svmsim::test {

/// What an exhaustive exploration found.
struct Exploration {
  std::size_t states = 0;
  std::size_t transitions = 0;
  std::size_t final_states = 0;
  std::string violation;           ///< empty: every state is as it should be
  std::vector<std::string> trace;  ///< the shortest way to the violation, a step a line

  [[nodiscard]] bool holds() const noexcept { return violation.empty(); }
  [[nodiscard]] std::string text() const {
    std::string result = violation;
    for (std::size_t i = 0; i < trace.size(); ++i)
      result += "\n  " + std::to_string(i + 1) + ". " + trace[i];
    return result;
  }
};

/// Visits every state that a model can reach, breadth first, until one is wrong. A state from which no final
/// state can be reached is wrong too: what should happen is put off for ever. A model has a type State, and
///   State initial();
///   std::string key(const State&);  equal keys are equal states
///   void successors(const State&, emit);  emit(label, next) for every step that some actor can take
///   std::string violation(const State&, bool final);  empty when nothing is wrong; final: no step is left
template <typename Model>
class Explorer {
 public:
  explicit Explorer(Model& model) : model_(model) {}

  Exploration run() {
    visit(model_.initial(), 0, {});
    for (std::size_t current = 0; current < visited_.size(); ++current) {
      // The vector grows while its element is expanded.
      const State state = visited_[current].state;
      const std::size_t before = edges_.size();
      model_.successors(state, [&](std::string label, State next) {
        edges_.emplace_back(visit(std::move(next), current, std::move(label)), current);
      });
      const bool is_final = edges_.size() == before;
      if (is_final) finals_.push_back(current);
      const std::string violation = model_.violation(state, is_final);
      if (!violation.empty()) return result(violation, current);
    }
    const std::size_t stranded = first_without_end();
    return stranded == visited_.size() ? result({}, 0) : result("no end can be reached", stranded);
  }

 private:
  using State = typename Model::State;
  struct Visited {
    State state;
    std::size_t parent;
    std::string label;
  };

  std::size_t visit(State state, std::size_t parent, std::string label) {
    const auto [entry, is_new] = index_.emplace(model_.key(state), visited_.size());
    if (is_new) visited_.push_back({std::move(state), parent, std::move(label)});
    return entry->second;
  }

  Exploration result(std::string violation, std::size_t at) const {
    Exploration found{visited_.size(), edges_.size(), finals_.size(), std::move(violation), {}};
    for (; at != 0; at = visited_[at].parent)
      found.trace.push_back(visited_[at].label);
    std::reverse(found.trace.begin(), found.trace.end());
    return found;
  }

  // Backwards from the final states.
  std::size_t first_without_end() {
    std::vector<std::vector<std::size_t>> predecessors(visited_.size());
    for (const auto& [to, from] : edges_)
      predecessors[to].push_back(from);
    std::vector<bool> ends(visited_.size());
    std::vector<std::size_t> open = finals_;
    while (!open.empty()) {
      const std::size_t state = open.back();
      open.pop_back();
      if (ends[state]) continue;
      ends[state] = true;
      open.insert(open.end(), predecessors[state].begin(), predecessors[state].end());
    }
    return static_cast<std::size_t>(std::find(ends.begin(), ends.end(), false) - ends.begin());
  }

  Model& model_;
  std::vector<Visited> visited_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::pair<std::size_t, std::size_t>> edges_;  // to, from
  std::vector<std::size_t> finals_;
};

template <typename Model>
Exploration explore(Model& model) {
  return Explorer<Model>(model).run();
}

}  // namespace svmsim::test
