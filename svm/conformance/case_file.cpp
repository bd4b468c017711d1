#include "svm/conformance/case_file.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace svmsim::svm::conformance {

namespace {

constexpr std::size_t most_rows = 100'000;

class CaseFileReader {
 public:
  CaseFileReader(std::string source, const std::vector<CaseKind>& kinds)
      : source_(std::move(source)), kinds_(kinds), problems_(source_) {}

  void read(std::string_view text) {
    const CaseNode root = parse_case_file(text, source_, problems_);
    if (!problems_.empty()) throw CaseError(problems_.take());
    read(root);
  }

  void read(const CaseNode& root) {
    NodeTable top(root, "", problems_);
    std::vector<const CaseNode*> lists;
    for (const CaseKind& kind : kinds_)
      lists.push_back(top.list(kind.key));
    top.finish();
    const bool none =
        std::all_of(lists.begin(), lists.end(), [](const auto* list) { return list == nullptr; });
    if (none && problems_.empty()) nothing_there();
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (lists[kind] == nullptr) continue;
      const auto& items = lists[kind]->items;
      for (std::size_t i = 0; i < items.size(); ++i)
        case_or_table(kinds_[kind], items[i], fmt::format("{}[{}]", kinds_[kind].key, i));
    }
    if (!problems_.empty()) throw CaseError(problems_.take());
  }

 private:
  void nothing_there() {
    std::vector<std::string> tables;
    for (const CaseKind& kind : kinds_)
      tables.push_back(fmt::format("[[{}]]", kind.key));
    problems_.add(1, std::string{kinds_.front().key},
                  fmt::format("is missing: a file of cases has {} tables", fmt::join(tables, ", ")));
  }

  void case_or_table(const CaseKind& kind, const CaseNode& node, const std::string& path) {
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
      one_case(kind, template_node, path);
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
      one_row(kind, template_node, row, usual, row_path);
    }
  }

  void one_row(const CaseKind& kind, const CaseNode& template_node, const CaseNode& row,
               const CaseNode* usual, const std::string& path) {
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
    one_case(kind, filled, path);
  }

  void one_case(const CaseKind& kind, const CaseNode& node, const std::string& path) {
    NodeTable table(node, path, problems_);
    CaseIdentity identity;
    identity.file = source_;
    identity.line = node.line;
    identity.name = table.text("name", true).value_or("");
    identity.source = table.text("source", true).value_or("");
    identity.rule = table.text("rule", true).value_or("");
    if (!identity.name.empty()) {
      const auto [earlier, is_new] = lines_.emplace(identity.name, node.line);
      if (!is_new) {
        table.problem(
            "name", node.find("name")->line,
            fmt::format("\"{}\" is also the name of the case in line {}", identity.name, earlier->second));
      }
    }
    kind.read(std::move(identity), table);
    table.finish();
  }

  std::string source_;
  const std::vector<CaseKind>& kinds_;
  TomlProblems problems_;
  std::map<std::string, std::size_t> lines_;
};

}  // namespace

void CaseResult::judge() noexcept {
  passed = std::all_of(fields.begin(), fields.end(), [](const FieldResult& one) { return one.equal(); });
}

void read_case_file(std::string_view text, const std::string& source, const std::vector<CaseKind>& kinds) {
  CaseFileReader(source, kinds).read(text);
}

void read_case_file(const CaseNode& root, const std::string& source, const std::vector<CaseKind>& kinds) {
  CaseFileReader(source, kinds).read(root);
}

}  // namespace svmsim::svm::conformance
