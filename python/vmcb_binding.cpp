// svmsim vmcb explain and the table of HLT, for Python: JSON text across the border, as everywhere.

#include "python/vmcb_binding.hpp"

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "model/config/profile.hpp"
#include "python/binding_support.hpp"
#include "svm/features.hpp"
#include "svm/hlt_table.hpp"
#include "svm/vmcb_dump/explain.hpp"

namespace py = pybind11;

namespace {

using svmsim::Problem;
using svmsim::UserError;
using svmsim::svm::FeatureSet;

/// The features that a profile's processor has, or the named ones.
std::optional<FeatureSet> features_of(const std::vector<std::string>& names, const std::string& profile) {
  if (names.empty() && profile.empty()) return std::nullopt;
  FeatureSet features = profile.empty() ? FeatureSet{} : svmsim::model::load_profile(profile).features;
  std::vector<Problem> problems;
  for (const std::string& name : names) {
    const bool removes = !name.empty() && name[0] == '-';
    const std::string plain = removes || (!name.empty() && name[0] == '+') ? name.substr(1) : name;
    if (const auto feature = svmsim::svm::feature_of(plain)) {
      features.set(*feature, !removes);
    } else {
      problems.push_back({"--features", 0, plain, "no such feature of CPUID Fn8000_000A",
                          svmsim::nearest_name(plain, svmsim::svm::feature_names())});
    }
  }
  if (!problems.empty()) throw UserError(std::move(problems));
  return features;
}

std::string explain_vmcb(const std::string& path, std::size_t dump, const std::vector<std::string>& features,
                         const std::string& profile, unsigned physical_address_bits) {
  svmsim::svm::ExplainOptions options;
  options.features = features_of(features, profile);
  if (physical_address_bits != 0) options.physical_address_bits = physical_address_bits;
  const py::gil_scoped_release release;
  return to_json(explain(svmsim::svm::read_vmcb_image(path, dump), options));
}

void translate_vmcb_error(std::exception_ptr pending) {
  try {
    if (pending) std::rethrow_exception(pending);
  } catch (const svmsim::svm::VmcbError& error) {
    raise_user_error("VmcbError", error);
  }
}

}  // namespace

void bind_vmcb(py::module_& module) {
  py::register_exception_translator(&translate_vmcb_error);
  module.def("explain_vmcb", &explain_vmcb, py::arg("path"), py::arg("dump") = 0,
             py::arg("features") = std::vector<std::string>{}, py::arg("profile") = "",
             py::arg("physical_address_bits") = 0);
  module.def("hlt_table", [] { return to_json(svmsim::svm::make_hlt_table()); });
}
