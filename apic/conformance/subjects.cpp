#include "apic/conformance/subjects.hpp"

#include <iterator>

#include "apic/conformance/avic_machine.hpp"
#include "apic/conformance/lapic_machine.hpp"
#include "svm/conformance/suite.hpp"

namespace svmsim {
const std::vector<EmbeddedFile>& builtin_apic_case_files();
}  // namespace svmsim

namespace svmsim::apic::conformance {

namespace {

using svm::conformance::CaseIdentity;
using svm::conformance::CaseResult;
using svm::conformance::Subject;
using svm::conformance::SuiteCase;

template <typename Machine, typename Setup>
SuiteCase scripted(CaseIdentity identity, const Setup& setup, std::size_t units, NodeTable& table) {
  const Script<Machine> script(table, units);
  return SuiteCase(identity, [identity, setup, script] {
    CaseResult result{identity};
    Machine machine(setup);
    script.run(machine, result);
    return result;
  });
}

}  // namespace

const Subject& lapic_subject() {
  static constexpr Subject subject{"lapic", [](CaseIdentity identity, NodeTable& table) {
                                     const LapicSetup setup = read_lapic_setup(table);
                                     return scripted<LapicMachine>(std::move(identity), setup,
                                                                   setup.units.size(), table);
                                   }};
  return subject;
}

const Subject& avic_subject() {
  static constexpr Subject subject{"avic", [](CaseIdentity identity, NodeTable& table) {
                                     const AvicSetup setup = read_avic_setup(table);
                                     return scripted<AvicMachine>(std::move(identity), setup,
                                                                  setup.vcpus.size(), table);
                                   }};
  return subject;
}

const std::vector<Subject>& all_subjects() {
  static const std::vector<Subject> all{svm::conformance::guest_subject(), lapic_subject(), avic_subject()};
  return all;
}

std::vector<SuiteCase> builtin_apic_cases() {
  return svm::conformance::embedded_cases(builtin_apic_case_files(), all_subjects());
}

std::vector<SuiteCase> builtin_cases() {
  std::vector<SuiteCase> all = svm::conformance::builtin_cases();
  std::vector<SuiteCase> more = builtin_apic_cases();
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return all;
}

}  // namespace svmsim::apic::conformance
