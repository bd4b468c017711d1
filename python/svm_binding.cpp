// Vmcb and Environment for Python. Names and structure of what they are given are those of the case files,
// read by the same code.

#include "python/svm_binding.hpp"

#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <pybind11/stl.h>

#include "python/binding_support.hpp"
#include "svm/conformance/case_reader.hpp"
#include "svm/conformance/guest_setup.hpp"
#include "svm/conformance/names.hpp"
#include "svm/conformance/program_reader.hpp"
#include "svm/conformance/settings.hpp"
#include "svm/exit_code.hpp"
#include "svm/vmcb_fields.hpp"
#include "svm/vmrun_checks.hpp"

namespace py = pybind11;
namespace cases = svmsim::svm::conformance;

using svmsim::Problem;
using svmsim::TomlProblems;
using svmsim::svm::TableEnvironment;
using svmsim::svm::Vmcb;
using svmsim::svm::VmcbField;
using svmsim::svm::VmcbSegment;

namespace {

constexpr const char* python_source = "";

void throw_if_any(TomlProblems& problems) {
  if (!problems.empty()) throw cases::CaseError(problems.take());
}

void update_vmcb(Vmcb& vmcb, const py::dict& fields) {
  TomlProblems problems(python_source);
  const cases::VmcbChange change = cases::read_vmcb_change(node_of(fields, "vmcb"), "vmcb", problems);
  throw_if_any(problems);
  apply(change, vmcb);
}

svmsim::svm::VmcbPath path_of(const std::string& name) {
  const auto path = svmsim::svm::find_vmcb_path(name);
  if (!path) {
    throw cases::CaseError(Problem{"", 0, name, "the VMCB has no such field",
                                   svmsim::nearest_name(name, svmsim::svm::vmcb_paths())});
  }
  return *path;
}

void set_path(Vmcb& vmcb, const std::string& name, std::uint64_t value) {
  const svmsim::svm::VmcbPath path = path_of(name);
  if (value > path.maximum()) {
    throw cases::CaseError(
        Problem{"", 0, name, fmt::format("is {:#x}, but must be at most {:#x}", value, path.maximum()), ""});
  }
  path.set(vmcb, value);
}

std::vector<std::string> intercept_names(const Vmcb& vmcb) {
  std::vector<std::string> names;
  for (std::size_t bit = 0; bit < svmsim::svm::intercept_count; ++bit) {
    const auto intercept = static_cast<svmsim::svm::Intercept>(bit);
    if (intercepted(vmcb.control, intercept)) names.emplace_back(intercept_name(intercept));
  }
  return names;
}

std::vector<py::dict> violations(const Vmcb& vmcb, const py::iterable& features, const py::dict& knobs,
                                 const py::dict& limits, TableEnvironment* environment) {
  const cases::CaseNode node = node_of(py::dict(py::arg("features") = py::list(features),
                                                py::arg("knobs") = knobs, py::arg("limits") = limits),
                                       "");
  TomlProblems problems(python_source);
  cases::NodeTable table(node, "", problems);
  svmsim::svm::FeatureSet feature_set = cases::every_feature();
  svmsim::svm::Knobs knob_set;
  svmsim::svm::ProcessorLimits limit_set;
  read_features(table, feature_set);
  read_knobs(table, knob_set);
  read_limits(table, limit_set);
  throw_if_any(problems);
  std::vector<py::dict> result;
  for (const auto& rule : vmrun_violations(vmcb, feature_set, knob_set, limit_set, environment)) {
    result.push_back(py::dict(py::arg("id") = std::string{rule.id},
                              py::arg("section") = std::string{rule.section},
                              py::arg("text") = std::string{rule.text}));
  }
  return result;
}

void update_environment(TableEnvironment& environment, const py::dict& changes, bool arriving) {
  TomlProblems problems(python_source);
  const cases::CaseNode node = node_of(changes, "");
  cases::NodeTable table(node, "", problems);
  cases::SurroundingsChange change;
  if (arriving) {
    change.pending = cases::read_pending(table);
  } else {
    change = cases::read_surroundings(table);
  }
  table.finish();
  throw_if_any(problems);
  apply(change, environment, arriving);
}

void bind_vmcb(py::module_& module) {
  py::class_<VmcbSegment>(module, "Segment", "A segment register of a Vmcb.")
      .def_readwrite("selector", &VmcbSegment::selector)
      .def_readwrite("attrib", &VmcbSegment::attrib)
      .def_readwrite("limit", &VmcbSegment::limit)
      .def_readwrite("base", &VmcbSegment::base);

  py::class_<Vmcb> type(
      module, "Vmcb",
      "A VMCB, at first a legal one: a flat 64-bit guest with IF = 0 and nested paging that intercepts "
      "VMRUN,\n"
      "VMMCALL and shutdown. Keyword arguments change it as update() does: fields, bits and intercepts "
      "named\n"
      "and nested as in case files. Fields are attributes; vmcb[\"int_ctl.v_irq\"] reaches named bits.");
  type.def(py::init([](const py::kwargs& fields) {
        Vmcb vmcb = cases::default_vmcb();
        update_vmcb(vmcb, fields);
        return vmcb;
      }))
      .def_static("from_bytes",
                  [](const py::bytes& bytes) {
                    const std::string_view view = bytes;
                    if (view.size() != sizeof(Vmcb)) {
                      throw cases::CaseError(Problem{
                          "", 0, "vmcb", fmt::format("is {} bytes, but a VMCB is 4096", view.size()), ""});
                    }
                    Vmcb vmcb;
                    std::memcpy(&vmcb, view.data(), sizeof(vmcb));
                    return vmcb;
                  })
      .def("to_bytes",
           [](const Vmcb& vmcb) { return py::bytes(reinterpret_cast<const char*>(&vmcb), sizeof(vmcb)); })
      .def("update", [](Vmcb& vmcb, const py::kwargs& fields) { update_vmcb(vmcb, fields); })
      .def("copy", [](const Vmcb& vmcb) { return vmcb; })
      .def("__getitem__", [](const Vmcb& vmcb, const std::string& name) { return path_of(name).get(vmcb); })
      .def("__setitem__", &set_path)
      .def("__eq__", [](const Vmcb& a, const Vmcb& b) { return std::memcmp(&a, &b, sizeof(Vmcb)) == 0; })
      .def_property_readonly("intercepts", &intercept_names)
      .def_property_readonly("exit",
                             [](const Vmcb& vmcb) { return cases::exit_text(vmcb.control.exit_code); })
      .def("violations", &violations, py::arg("features") = py::tuple(), py::arg("knobs") = py::dict(),
           py::arg("limits") = py::dict(), py::arg("environment") = nullptr)
      .def("__repr__", [](const Vmcb& vmcb) {
        return fmt::format("<Vmcb rip={:#x} exit={}>", vmcb.save.rip,
                           cases::exit_text(vmcb.control.exit_code));
      });
  type.attr("__hash__") = py::none();
  for (const VmcbField& field : svmsim::svm::all_vmcb_fields()) {
    if (field.name.find('.') != std::string::npos) continue;
    const VmcbField* const where = &field;  // of a table that never changes
    type.def_property(
        field.name.c_str(), [where](const Vmcb& vmcb) { return get_field(vmcb, *where); },
        [where](Vmcb& vmcb, std::uint64_t value) { set_path(vmcb, where->name, value); });
  }
  using Save = svmsim::svm::VmcbSave;
  const auto segment = [&type](const char* name, VmcbSegment Save::*member) {
    type.def_property_readonly(
        name, [member](Vmcb& vmcb) -> VmcbSegment& { return vmcb.save.*member; },
        py::return_value_policy::reference_internal);
  };
  segment("es", &Save::es);
  segment("cs", &Save::cs);
  segment("ss", &Save::ss);
  segment("ds", &Save::ds);
  segment("fs", &Save::fs);
  segment("gs", &Save::gs);
  segment("gdtr", &Save::gdtr);
  segment("ldtr", &Save::ldtr);
  segment("idtr", &Save::idtr);
  segment("tr", &Save::tr);
  module.def("vmcb_paths", [] { return svmsim::svm::vmcb_paths(); });
}

void bind_environment(py::module_& module) {
  py::class_<TableEnvironment>(
      module, "Environment",
      "What surrounds a guest: MSRs, ports, permission maps, nested pages, pending events, time. Keyword\n"
      "arguments are the keys that describe surroundings in case files.")
      .def(py::init([](const py::kwargs& changes) {
        auto environment = std::make_unique<TableEnvironment>();
        update_environment(*environment, changes, false);
        return environment;
      }))
      .def("update", [](TableEnvironment& environment,
                        const py::kwargs& changes) { update_environment(environment, changes, false); })
      .def("arrive", [](TableEnvironment& environment,
                        const py::kwargs& events) { update_environment(environment, events, true); })
      .def("advance", &TableEnvironment::advance, py::arg("cycles"))
      .def_readwrite("tsc", &TableEnvironment::tsc)
      .def_readwrite("smi_pending", &TableEnvironment::smi_pending)
      .def_readwrite("init_pending", &TableEnvironment::init_pending)
      .def_readwrite("nmi_pending", &TableEnvironment::nmi_pending)
      .def_property(
          "interrupts_pending",
          [](const TableEnvironment& e) {
            return std::vector<unsigned>(e.interrupts_pending.begin(), e.interrupts_pending.end());
          },
          [](TableEnvironment& e, const std::vector<std::uint8_t>& vectors) {
            e.interrupts_pending = vectors;
          })
      .def_property_readonly("msrs", [](const TableEnvironment& e) { return e.msrs; })
      .def_property_readonly("ports", [](const TableEnvironment& e) { return e.ports; })
      .def_property_readonly("vmcb_pages", [](const TableEnvironment& e) { return e.vmcb_pages; });
}

void translate_case_error(std::exception_ptr pending) {
  try {
    if (pending) std::rethrow_exception(pending);
  } catch (const cases::CaseError& error) {
    raise_user_error("CaseError", error);
  }
}

}  // namespace

cases::CaseNode node_of(const py::handle& value, const std::string& path) {
  cases::CaseNode node;
  const auto refuse = [&path](const std::string& message) {
    throw cases::CaseError(Problem{"", 0, path, message, ""});
  };
  if (py::isinstance<py::bool_>(value)) {
    node.kind = cases::CaseNode::Kind::boolean;
    node.number = value.cast<bool>() ? 1 : 0;
  } else if (py::isinstance<py::int_>(value)) {
    node.kind = cases::CaseNode::Kind::integer;
    node.hexadecimal = true;
    const py::int_ number = py::reinterpret_borrow<py::int_>(value);
    node.negative = PyObject_RichCompareBool(number.ptr(), py::int_(0).ptr(), Py_LT) == 1;
    node.number = node.negative ? static_cast<std::uint64_t>(PyLong_AsLongLong(number.ptr()))
                                : PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      refuse("is greater than 64 bits hold");
    }
  } else if (py::isinstance<py::str>(value)) {
    node.kind = cases::CaseNode::Kind::text;
    node.text = value.cast<std::string>();
  } else if (py::isinstance<py::dict>(value)) {
    for (const auto& [key, content] : py::reinterpret_borrow<py::dict>(value)) {
      const std::string name = py::str(key);
      node.entries.emplace_back(name, node_of(content, path.empty() ? name : path + "." + name));
    }
  } else if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    node.kind = cases::CaseNode::Kind::list;
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(value))
      node.items.push_back(node_of(item, fmt::format("{}[{}]", path, node.items.size())));
  } else {
    refuse(fmt::format("must be a dict, list, str, int or bool, not {}",
                       std::string(py::str(py::type::of(value).attr("__name__")))));
  }
  return node;
}

void bind_vmcb_and_environment(py::module_& module) {
  bind_vmcb(module);
  bind_environment(module);
}

void bind_svm(py::module_& module) {
  py::register_exception_translator(&translate_case_error);
  bind_vmcb_and_environment(module);
  bind_guest_cpu(module);
  bind_check(module);
}
