#include "svm/conformance/case_reader.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "svm/conformance/program_reader.hpp"
#include "svm/conformance/settings.hpp"

namespace svmsim::svm::conformance {

namespace {

constexpr std::size_t most_rows = 100'000;

class CaseReader {
 public:
  explicit CaseReader(std::string source) : source_(std::move(source)), problems_(source_) {}

  std::vector<Case> read(std::string_view text) {
    const CaseNode root = parse_case_file(text, source_, problems_);
    if (!problems_.empty()) throw CaseError(problems_.take());
    return read(root);
  }

  std::vector<Case> read(const CaseNode& root) {
    NodeTable top(root, "", problems_);
    const CaseNode* list = top.list("case");
    top.finish();
    if (list == nullptr && problems_.empty())
      problems_.add(1, "case", "is missing: a file of cases has [[case]] tables");
    if (list != nullptr) {
      for (std::size_t i = 0; i < list->items.size(); ++i)
        case_or_table(list->items[i], fmt::format("case[{}]", i));
    }
    if (!problems_.empty()) throw CaseError(problems_.take());
    return std::move(cases_);
  }

 private:
  void case_or_table(const CaseNode& node, const std::string& path) {
    NodeTable table(node, path, problems_);
    if (node.kind != CaseNode::Kind::table) return;
    const CaseNode* rows = table.list("table");
    const CaseNode* usual = table.table("defaults");
    CaseNode template_node = node;
    auto& entries = template_node.entries;
    entries.erase(
        std::remove_if(entries.begin(), entries.end(),
                       [](const auto& entry) { return entry.first == "table" || entry.first == "defaults"; }),
        entries.end());
    if (rows == nullptr) {
      if (usual != nullptr)
        table.problem("defaults", usual->line, "is for the rows of a table, and there is none");
      one_case(template_node, path);
      return;
    }
    if (rows->items.size() > most_rows) {
      table.problem("table", rows->line, fmt::format("has more than {} rows", most_rows));
      return;
    }
    for (std::size_t i = 0; i < rows->items.size(); ++i) {
      const CaseNode& row = rows->items[i];
      const std::string row_path = fmt::format("{}.table[{}]", path, i);
      if (row.kind != CaseNode::Kind::table) {
        problems_.add(row.line, row_path, fmt::format("must be a table, not {}", row.kind_text()));
        continue;
      }
      one_row(template_node, row, usual, row_path);
    }
  }

  void one_row(const CaseNode& template_node, const CaseNode& row, const CaseNode* usual,
               const std::string& path) {
    CaseNode parameters = row;
    if (usual != nullptr) {
      for (const auto& entry : usual->entries) {
        if (row.find(entry.first) == nullptr) parameters.entries.push_back(entry);
      }
    }
    std::vector<std::string> used;
    CaseNode filled = substitute(template_node, parameters, path, used, problems_);
    filled.line = row.line;
    for (const auto& [key, value] : row.entries) {
      if (std::find(used.begin(), used.end(), key) == used.end()) {
        problems_.add(value.line, path + "." + key,
                      fmt::format("is not used: ${} occurs nowhere in the case", key),
                      nearest_name(key, used));
      }
    }
    one_case(filled, path);
  }

  void one_case(const CaseNode& node, const std::string& path) {
    NodeTable table(node, path, problems_);
    Case result;
    result.file = source_;
    result.line = node.line;
    result.name = table.text("name", true).value_or("");
    result.source = table.text("source", true).value_or("");
    result.rule = table.text("rule", true).value_or("");
    if (!result.name.empty()) {
      const auto [earlier, is_new] = lines_.emplace(result.name, node.line);
      if (!is_new) {
        table.problem(
            "name", node.find("name")->line,
            fmt::format("\"{}\" is also the name of the case in line {}", result.name, earlier->second));
      }
    }
    result.features = every_feature();
    read_features(table, result.features);
    read_knobs(table, result.knobs);
    read_limits(table, result.limits);
    const CaseNode* runs = table.list("vmrun");
    result.runs.push_back(one_run(table, runs != nullptr));
    table.finish();
    if (runs != nullptr) {
      more_runs(*runs, table.path("vmrun"), result);
    }
    cases_.push_back(std::move(result));
  }

  // What a case says outside of its "vmrun" tables belongs to the first of them.
  void more_runs(const CaseNode& runs, const std::string& path, Case& result) {
    if (runs.items.empty()) problems_.add(runs.line, path, "must not be empty");
    for (std::size_t i = 0; i < runs.items.size(); ++i) {
      NodeTable table(runs.items[i], fmt::format("{}[{}]", path, i), problems_);
      CaseRun run = one_run(table, false);
      table.finish();
      if (i != 0) {
        result.runs.push_back(std::move(run));
        continue;
      }
      CaseRun& first = result.runs.front();
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
      run.vmcb = read_vmcb_change(*vmcb, table.path("vmcb"), problems_);
    run.surroundings = read_surroundings(table);
    run.skip = table.boolean("skip").value_or(false);
    if (const CaseNode* program = table.get("program"))
      run.program = read_program(*program, table.path("program"), problems_);
    if (const CaseNode* handlers = table.table("handlers")) {
      for (const auto& [key, value] : handlers->entries) {
        const std::string path = table.path("handlers." + key);
        const auto vector = parse_number(key);
        if (!vector || *vector > UINT8_MAX) {
          problems_.add(value.line, path, "must be the number of a vector");
        } else {
          run.handlers[static_cast<std::uint8_t>(*vector)] = read_program(value, path, problems_);
        }
      }
    }
    if (without_expectation) return run;
    const CaseNode* expect = table.get("expect");
    if (expect == nullptr) {
      table.problem("expect", table.node().line, "is missing");
    } else {
      run.expect = read_expectation(*expect, table.path("expect"), problems_);
    }
    return run;
  }

  std::string source_;
  TomlProblems problems_;
  std::map<std::string, std::size_t> lines_;
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> read_cases(std::string_view text, const std::string& source) {
  return CaseReader(source).read(text);
}

std::vector<Case> read_cases(const CaseNode& root, const std::string& source) {
  return CaseReader(source).read(root);
}

}  // namespace svmsim::svm::conformance
