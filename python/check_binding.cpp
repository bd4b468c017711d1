// The conformance suite for Python: results as JSON text.

#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "apic/conformance/subjects.hpp"
#include "python/svm_binding.hpp"
#include "svm/conformance/suite.hpp"

namespace py = pybind11;
namespace cases = svmsim::svm::conformance;

namespace {

using Json = nlohmann::ordered_json;

Json identity(const cases::CaseIdentity& one) {
  return {
      {"name", one.name}, {"source", one.source}, {"rule", one.rule}, {"file", one.file}, {"line", one.line}};
}

Json result_json(const cases::CaseResult& result) {
  Json item = identity(result);
  item["passed"] = result.passed;
  if (result.passed) return item;
  item["expected"] = Json::object();
  item["seen"] = Json::object();
  for (const cases::FieldResult& field : result.fields) {
    if (field.equal()) continue;
    item["expected"][field.field] = field.expected;
    item["seen"][field.field] = field.seen;
  }
  item["trace"] = result.trace;
  return item;
}

std::vector<cases::SuiteCase> chosen(const std::vector<std::string>& files, const py::object& tree,
                                     const std::string& glob) {
  const std::vector<cases::Subject>& subjects = svmsim::apic::conformance::all_subjects();
  std::vector<cases::SuiteCase> all;
  if (!tree.is_none()) {
    all = cases::suite_of(node_of(tree, ""), "<dict>", subjects);
  } else {
    all = files.empty() ? svmsim::apic::conformance::builtin_cases() : cases::load_cases(files, subjects);
  }
  return glob.empty() ? all : cases::filter_cases(std::move(all), glob);
}

std::string check(const std::vector<std::string>& files, const py::object& tree, const std::string& glob) {
  const std::vector<cases::SuiteCase> all = chosen(files, tree, glob);
  const py::gil_scoped_release release;
  const cases::SuiteResult suite = cases::run_cases(all);
  Json json{{"cases", suite.results.size()}, {"passed", suite.passed}, {"failed", suite.failed}};
  json["results"] = Json::array();
  for (const cases::CaseResult& result : suite.results)
    json["results"].push_back(result_json(result));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string list_cases(const std::vector<std::string>& files, const std::string& glob) {
  Json json = Json::array();
  for (const cases::SuiteCase& one : chosen(files, py::none(), glob))
    json.push_back(identity(one));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void bind_check(py::module_& module) {
  module.def("check", &check, py::arg("files"), py::arg("tree") = py::none(), py::arg("glob") = "");
  module.def("list_cases", &list_cases, py::arg("files"), py::arg("glob") = "");
}
