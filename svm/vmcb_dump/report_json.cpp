#include <nlohmann/json.hpp>

#include "svm/vmcb_dump/explain.hpp"

namespace svmsim::svm {

namespace {

using Json = nlohmann::ordered_json;

Json findings_json(const std::vector<Finding>& findings) {
  Json result = Json::array();
  for (const Finding& finding : findings) {
    Json entry{{"id", finding.id}, {"section", finding.section}, {"text", finding.text}};
    if (!finding.reason.empty()) entry["reason"] = finding.reason;
    entry["because"] = finding.because;
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace

std::string to_json(const VmcbReport& report) {
  Json result;
  result["source"] = report.source;
  result["kind"] = report.kind;
  result["legal"] = report.legal();
  result["verdict"] = report.verdict;
  result["facts"] = Json::object();
  for (const auto& [name, text] : report.facts)
    result["facts"][name] = text;
  result["exit"] = {{"code", report.exit.code},
                    {"name", report.exit.name},
                    {"kernel_name", report.exit.kernel},
                    {"meaning", report.exit.meaning},
                    {"details", report.exit.details}};
  result["violations"] = findings_json(report.violations);
  result["suspicions"] = findings_json(report.suspicions);
  result["unjudged"] = Json::array();
  for (const Unjudged& item : report.unjudged)
    result["unjudged"].push_back({{"id", item.id}, {"text", item.text}, {"needs", item.needs}});
  result["assumptions"] = report.assumptions;
  result["lost"] = report.lost;
  result["not_printed"] = report.not_printed;
  result["notes"] = report.notes;
  result["groups"] = Json::array();
  for (const DecodedGroup& group : report.groups) {
    Json fields = Json::array();
    for (const DecodedField& field : group.fields) {
      fields.push_back({{"name", field.name},
                        {"offset", field.offset},
                        {"value", field.value},
                        {"meaning", field.meaning}});
    }
    result["groups"].push_back({{"title", group.title}, {"fields", std::move(fields)}});
  }
  return result.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace svmsim::svm
