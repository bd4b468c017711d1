// GuestCpu for Python, step by step.

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "python/svm_binding.hpp"
#include "svm/action_table.hpp"
#include "svm/conformance/case_reader.hpp"
#include "svm/conformance/names.hpp"
#include "svm/conformance/program_reader.hpp"
#include "svm/conformance/settings.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/step_text.hpp"
#include "svm/table_environment.hpp"

namespace py = pybind11;
namespace cases = svmsim::svm::conformance;

using svmsim::TomlProblems;
using svmsim::svm::GuestCpu;
using svmsim::svm::StepKind;
using svmsim::svm::TableEnvironment;
using svmsim::svm::Vmcb;

namespace {

/// What one step led to, with the exit code, which the C++ side leaves in the VMCB.
struct StepView {
  std::string kind;
  unsigned vector = 0;
  std::uint64_t result = 0;
  std::optional<std::uint64_t> exit_code;

  [[nodiscard]] std::optional<std::string> exit() const {
    return exit_code ? std::optional{cases::exit_text(*exit_code)} : std::nullopt;
  }
  [[nodiscard]] std::string repr() const {
    if (exit_code) return fmt::format("<Step vmexit {}>", cases::exit_text(*exit_code));
    if (kind == "delivered") return fmt::format("<Step delivered vector={:#x}>", vector);
    return result != 0 ? fmt::format("<Step {} result={:#x}>", kind, result) : fmt::format("<Step {}>", kind);
  }
};

/// A GuestCpu with its surroundings; keeps alive what the core points to.
class Guest {
 public:
  Guest(py::object environment, const py::iterable& features, const py::dict& knobs, const py::dict& limits)
      : environment_(environment.is_none() ? py::cast(std::make_unique<TableEnvironment>())
                                           : std::move(environment)) {
    const cases::CaseNode node = node_of(py::dict(py::arg("features") = py::list(features),
                                                  py::arg("knobs") = knobs, py::arg("limits") = limits),
                                         "");
    TomlProblems problems("");
    cases::NodeTable table(node, "", problems);
    svmsim::svm::FeatureSet feature_set = cases::every_feature();
    svmsim::svm::Knobs knob_set;
    svmsim::svm::ProcessorLimits limit_set;
    read_features(table, feature_set);
    read_knobs(table, knob_set);
    read_limits(table, limit_set);
    if (!problems.empty()) throw cases::CaseError(problems.take());
    cpu_ = std::make_unique<GuestCpu>(feature_set, knob_set, limit_set);
  }

  StepView vmrun(py::object vmcb, bool host_if) {
    if (cpu_->in_guest_mode()) throw std::runtime_error("the guest is running: VMRUN needs a #VMEXIT first");
    auto& page = vmcb.cast<Vmcb&>();
    vmcb_ = std::move(vmcb);
    return view(cpu_->vmrun(page, host_if, surroundings()));
  }

  StepView boundary() {
    running();
    return view(cpu_->boundary(surroundings().events(), surroundings()));
  }

  StepView execute(const py::object& action, const py::kwargs& operands) {
    running();
    if (cpu_->halted()) throw std::runtime_error("the guest is halted: only an event at a boundary wakes it");
    cases::ProgramStep step = read(action, operands);
    step.action.rip = cpu_->rip();
    if (!step.has_cpl) step.action.cpl = cpu_->cpl();
    const svmsim::svm::Step done = cpu_->execute(step.action, surroundings());
    surroundings().advance(step.action.cycles);
    return view(done);
  }

  StepView step(const py::object& action, const py::kwargs& operands) {
    StepView event = boundary();
    return event.kind != "none" ? event : execute(action, operands);
  }

  [[nodiscard]] const GuestCpu& cpu() const noexcept { return *cpu_; }
  [[nodiscard]] py::object environment() const { return environment_; }
  [[nodiscard]] py::object vmcb() const { return vmcb_; }
  void set_rip(std::uint64_t rip) {
    running();
    cpu_->set_rip(rip);
  }

 private:
  void running() const {
    if (!cpu_->in_guest_mode()) throw std::runtime_error("the guest is not running: call vmrun() first");
  }
  TableEnvironment& surroundings() { return environment_.cast<TableEnvironment&>(); }

  [[nodiscard]] StepView view(const svmsim::svm::Step& step) const {
    StepView result{std::string{svmsim::svm::step_text(step.kind).name}, step.vector, step.result,
                    std::nullopt};
    if (step.kind == StepKind::vmexit) result.exit_code = vmcb_.cast<const Vmcb&>().control.exit_code;
    return result;
  }

  static cases::ProgramStep read(const py::object& action, const py::kwargs& operands) {
    cases::CaseNode list;
    list.kind = cases::CaseNode::Kind::list;
    list.items.push_back(node_of(action, "action"));
    if (!operands.empty()) {
      cases::CaseNode table = node_of(operands, "");
      table.entries.emplace_back("do", list.items.front());
      list.items.front() = std::move(table);
    }
    TomlProblems problems("");
    const cases::Program program = cases::read_program(list, "action", problems);
    if (!problems.empty()) throw cases::CaseError(problems.take());
    if (program.size() != 1 || program.front().kind != cases::ProgramStep::Kind::action)
      throw std::invalid_argument("execute() takes one action of the guest");
    return program.front();
  }

  py::object environment_;
  py::object vmcb_ = py::none();
  std::unique_ptr<GuestCpu> cpu_;
};

py::dict describe_actions() {
  py::dict result;
  for (const svmsim::svm::ActionInfo& info : svmsim::svm::action_table()) {
    py::dict operands;
    for (const svmsim::svm::ActionOperand& operand : info)
      operands[py::str(std::string{operand.key})] = std::string{operand.meaning};
    result[py::str(std::string{info.name})] =
        py::dict(py::arg("meaning") = std::string{info.meaning}, py::arg("length") = info.length,
                 py::arg("operands") = operands);
  }
  return result;
}

}  // namespace

void bind_guest_cpu(py::module_& module) {
  py::class_<StepView>(module, "Step", "What VMRUN, a boundary or an action led to.")
      .def_readonly("kind", &StepView::kind)
      .def_readonly("vector", &StepView::vector)
      .def_readonly("result", &StepView::result)
      .def_readonly("exit_code", &StepView::exit_code)
      .def_property_readonly("exit", &StepView::exit)
      .def("__repr__", &StepView::repr);
  py::class_<Guest>(module, "GuestCpu",
                    "A core that executes guest actions under a VMCB: vmrun(), then step() until a vmexit. "
                    "features, knobs\n"
                    "and limits are named as in case files.")
      .def(py::init<py::object, const py::iterable&, const py::dict&, const py::dict&>(),
           py::arg("environment") = py::none(), py::kw_only(), py::arg("features") = py::tuple(),
           py::arg("knobs") = py::dict(), py::arg("limits") = py::dict())
      .def("vmrun", &Guest::vmrun, py::arg("vmcb"), py::arg("host_if") = true,
           "Enters the guest; host_if is RFLAGS.IF of the host. RuntimeError while the guest runs.")
      .def("boundary", &Guest::boundary, "Looks for events; kind none when there is none.")
      .def("execute", &Guest::execute, py::arg("action"),
           "Executes one action at rip, without a look at events: execute(\"wrmsr\", msr=0x10a, value=5).")
      .def("step", &Guest::step, py::arg("action"), "boundary(), and execute() if no event came up.")
      .def_property_readonly("environment", &Guest::environment)
      .def_property_readonly("vmcb", &Guest::vmcb)
      .def_property(
          "rip", [](const Guest& g) { return g.cpu().rip(); }, &Guest::set_rip)
      .def_property_readonly("rflags", [](const Guest& g) { return g.cpu().rflags(); })
      .def_property_readonly("cpl", [](const Guest& g) { return static_cast<unsigned>(g.cpu().cpl()); })
      .def_property_readonly("v_tpr", [](const Guest& g) { return static_cast<unsigned>(g.cpu().v_tpr()); })
      .def_property_readonly("running", [](const Guest& g) { return g.cpu().in_guest_mode(); })
      .def_property_readonly("halted", [](const Guest& g) { return g.cpu().halted(); })
      .def_property_readonly("shut_down", [](const Guest& g) { return g.cpu().shut_down(); })
      .def_property_readonly("gif", [](const Guest& g) { return g.cpu().gif(); })
      .def_property_readonly("interrupt_shadow", [](const Guest& g) { return g.cpu().interrupt_shadow(); })
      .def_property_readonly("frames", [](const Guest& g) { return g.cpu().frames(); });
  module.def("describe_actions", &describe_actions);
}
