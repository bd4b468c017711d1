#include "svm/conformance/case_reader.hpp"

#include <fmt/format.h>

#include "svm/conformance/program_reader.hpp"
#include "svm/conformance/settings.hpp"

namespace svmsim::svm::conformance {

namespace {

/// Reads the table of one case.
class CaseReader {
 public:
  CaseReader(CaseIdentity identity, NodeTable& table) : table_(table), result_(std::move(identity)) {}

  Case read() {
    result_.features = every_feature();
    read_features(table_, result_.features);
    read_knobs(table_, result_.knobs);
    read_limits(table_, result_.limits);
    const CaseNode* runs = table_.list("vmrun");
    result_.runs.push_back(one_run(table_, runs != nullptr));
    if (runs != nullptr) more_runs(*runs, table_.path("vmrun"));
    return std::move(result_);
  }

 private:
  // What a case says outside of its "vmrun" tables belongs to the first of them.
  void more_runs(const CaseNode& runs, const std::string& path) {
    if (runs.items.empty()) problems().add(runs.line, path, "must not be empty");
    for (std::size_t i = 0; i < runs.items.size(); ++i) {
      NodeTable table(runs.items[i], fmt::format("{}[{}]", path, i), problems());
      CaseRun run = one_run(table, false);
      table.finish();
      if (i != 0) {
        result_.runs.push_back(std::move(run));
        continue;
      }
      CaseRun& first = result_.runs.front();
      if (run.host_if) first.host_if = run.host_if;
      if (run.core) first.core = run.core;
      if (run.physical) first.physical = run.physical;
      if (run.program) first.program = std::move(run.program);
      for (auto& [vector, program] : run.handlers)
        first.handlers[vector] = std::move(program);
      append(first.vmcb.fields, run.vmcb.fields);
      append(first.vmcb.intercepts, run.vmcb.intercepts);
      first.expect = std::move(run.expect);
      first.more_surroundings = std::move(run.surroundings);
    }
  }

  template <typename Item>
  static void append(std::vector<Item>& to, std::vector<Item>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  CaseRun one_run(NodeTable& table, bool without_expectation) {
    CaseRun run;
    run.host_if = table.boolean("host_if");
    if (const auto core = table.number("core", UINT16_MAX)) run.core = static_cast<unsigned>(*core);
    run.physical = table.number("vmcb_address", UINT64_MAX);
    if (const CaseNode* vmcb = table.get("vmcb"))
      run.vmcb = read_vmcb_change(*vmcb, table.path("vmcb"), problems());
    run.surroundings = read_surroundings(table);
    run.skip = table.boolean("skip").value_or(false);
    if (const CaseNode* program = table.get("program"))
      run.program = read_program(*program, table.path("program"), problems());
    run.handlers = read_handlers(table);
    if (without_expectation) return run;
    const CaseNode* expect = table.get("expect");
    if (expect == nullptr) {
      table.problem("expect", table.node().line, "is missing");
    } else {
      run.expect = read_expectation(*expect, table.path("expect"), problems());
    }
    return run;
  }

  [[nodiscard]] TomlProblems& problems() noexcept { return table_.problems(); }

  NodeTable& table_;
  Case result_;
};

template <typename Input>
std::vector<Case> read_all(const Input& input, const std::string& source) {
  std::vector<Case> cases;
  const CaseKind kind{"case", [&cases](CaseIdentity identity, NodeTable& table) {
                        cases.push_back(read_case(std::move(identity), table));
                      }};
  read_case_file(input, source, {kind});
  return cases;
}

}  // namespace

Case read_case(CaseIdentity identity, NodeTable& table) {
  return CaseReader(std::move(identity), table).read();
}

std::vector<Case> read_cases(std::string_view text, const std::string& source) {
  return read_all(text, source);
}

std::vector<Case> read_cases(const CaseNode& root, const std::string& source) {
  return read_all(root, source);
}

}  // namespace svmsim::svm::conformance
