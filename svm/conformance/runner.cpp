#include "svm/conformance/runner.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "svm/conformance/guest_driver.hpp"
#include "svm/conformance/names.hpp"
#include "svm/vmrun_checks.hpp"

namespace svmsim::svm::conformance {

namespace {

[[nodiscard]] std::string yes_or_no(bool value) {
  return value ? "true" : "false";
}

template <typename List>
[[nodiscard]] std::string list_text(const List& list) {
  std::vector<std::string> words;
  for (const auto item : list)
    words.push_back(hex(item));
  return fmt::format("[{}]", fmt::join(words, ", "));
}

[[nodiscard]] bool speaks_of(const Expectation& expect, std::string_view field) {
  return std::any_of(expect.fields.begin(), expect.fields.end(),
                     [&](const ExpectedValue& value) { return value.path.field->name == field; });
}

/// Compares what one VMRUN led to with what the case expects of it.
class Comparison {
 public:
  Comparison(const Expectation& expect, const GuestDriver& guest, std::string prefix, CaseResult& result)
      : expect_(expect), guest_(guest), prefix_(std::move(prefix)), result_(result) {}

  void compare(const std::vector<RuleViolation>& violations) {
    add("exit", expect_.exit ? exit_text(*expect_.exit) : "none",
        guest_.exited ? exit_text(guest_.vmcb.control.exit_code) : "none");
    if (expect_.rip)
      compare_rip("rip", *expect_.rip, guest_.exited ? guest_.vmcb.save.rip : guest_.cpu.rip());
    if (expect_.nrip) compare_rip("nrip", *expect_.nrip, guest_.vmcb.control.next_rip);
    for (const ExpectedValue& value : expect_.fields)
      add(value.name, hex(value.value & value.mask), hex(value.path.get(guest_.vmcb) & value.mask));
    add("delivered", list_text(expect_.delivered), list_text(guest_.delivered));
    compare_guest();
    if (expect_.violations) compare_violations(violations);
    if (expect_.clean_findings) compare_clean_findings();
    compare_surroundings();
    if (guest_.exited) compare_invariants();
  }

 private:
  void add(std::string_view field, std::string expected, std::string seen) {
    result_.fields.push_back({fmt::format("{}{}", prefix_, field), std::move(expected), std::move(seen)});
  }

  void compare_rip(std::string_view field, const ExpectedRip& expected, std::uint64_t seen) {
    std::uint64_t rip = 0;
    switch (expected.kind) {
      case ExpectedRip::Kind::at:
        rip = guest_.last_rip;
        break;
      case ExpectedRip::Kind::after:
        rip = guest_.last_next_rip;
        break;
      case ExpectedRip::Kind::offset:
        rip = guest_.program_rip + expected.value;
        break;
      case ExpectedRip::Kind::handler:
        rip = handler_rip(static_cast<std::uint8_t>(expected.value));
        break;
      case ExpectedRip::Kind::zero:
        break;
    }
    add(field, hex(rip), hex(seen));
  }

  [[nodiscard]] std::uint64_t handler_rip(std::uint8_t vector) const {
    const auto found = guest_.environment.handlers.find(vector);
    return found != guest_.environment.handlers.end() ? found->second
                                                      : TableEnvironment::default_handler(vector);
  }

  void compare_guest() {
    if (expect_.retired)
      add("retired", fmt::format("{}", *expect_.retired), fmt::format("{}", guest_.retired));
    if (expect_.halted) add("halted", yes_or_no(*expect_.halted), yes_or_no(guest_.cpu.halted()));
    if (expect_.shut_down) add("shut_down", yes_or_no(*expect_.shut_down), yes_or_no(guest_.cpu.shut_down()));
    if (expect_.reset) add("reset", yes_or_no(*expect_.reset), yes_or_no(guest_.reset));
    if (expect_.result)
      add("result", hex(*expect_.result), guest_.result ? hex(*guest_.result) : "nothing has retired");
  }

  void compare_violations(const std::vector<RuleViolation>& violations) {
    std::vector<std::string_view> seen;
    for (const RuleViolation& rule : violations)
      seen.push_back(rule.id);
    add("violations", fmt::format("{}", fmt::join(*expect_.violations, ", ")),
        fmt::format("{}", fmt::join(seen, ", ")));
  }

  void compare_clean_findings() {
    std::vector<std::string_view> seen;
    for (const CleanBitsFinding& finding : guest_.clean_findings)
      seen.push_back(clean_finding_name(finding));
    add("clean_findings", fmt::format("{}", fmt::join(*expect_.clean_findings, ", ")),
        fmt::format("{}", fmt::join(seen, ", ")));
  }

  void compare_surroundings() {
    const TableEnvironment& environment = guest_.environment;
    const PendingChange& pending = expect_.pending;
    if (pending.intr)
      add("pending.intr", list_text(*pending.intr), list_text(environment.interrupts_pending));
    if (pending.nmi) add("pending.nmi", yes_or_no(*pending.nmi), yes_or_no(environment.nmi_pending));
    if (pending.smi) add("pending.smi", yes_or_no(*pending.smi), yes_or_no(environment.smi_pending));
    if (pending.init) add("pending.init", yes_or_no(*pending.init), yes_or_no(environment.init_pending));
    for (const auto& [msr, value] : expect_.msrs) {
      const auto found = environment.msrs.find(msr);
      add(fmt::format("msrs.{:#x}", msr), hex(value),
          hex(found != environment.msrs.end() ? found->second : 0));
    }
    for (const auto& [address, values] : expect_.vmcb_pages) {
      const auto found = environment.vmcb_pages.find(address);
      for (const ExpectedValue& value : values) {
        const Vmcb page = found != environment.vmcb_pages.end() ? found->second : Vmcb{};
        add(fmt::format("vmcb_pages.{:#x}.{}", address, value.name), hex(value.value & value.mask),
            hex(value.path.get(page) & value.mask));
      }
    }
    for (const auto& [port, value] : expect_.ports) {
      const auto found = environment.ports.find(port);
      add(fmt::format("ports.{:#x}", port), hex(value),
          hex(found != environment.ports.end() ? found->second : 0));
    }
  }

  // What every #VMEXIT leaves behind (APM vol. 2, 15.6, 15.20 and 15.7.2).
  void compare_invariants() {
    add("gif", "0", guest_.cpu.gif() ? "1" : "0");
    const VmcbControl& control = guest_.vmcb.control;
    if (!speaks_of(expect_, "event_inj"))
      add("event_inj.valid", "0", (control.event_inj & event_inj::valid) != 0 ? "1" : "0");
    if (!speaks_of(expect_, "exit_int_info")) add("exit_int_info", hex(0), hex(control.exit_int_info));
  }

  const Expectation& expect_;
  const GuestDriver& guest_;
  std::string prefix_;
  CaseResult& result_;
};

}  // namespace

CaseResult run_case(const Case& conformance_case) {
  CaseResult result{conformance_case};
  GuestDriver guest(conformance_case);
  const bool several = conformance_case.runs.size() > 1;
  for (std::size_t i = 0; i < conformance_case.runs.size(); ++i) {
    const CaseRun& run = conformance_case.runs[i];
    if (several) guest.trace.push_back(fmt::format("-- VMRUN {}", i + 1));
    guest.run(run);
    const auto& violations = guest.violations;
    for (const RuleViolation& rule : violations)
      guest.trace.push_back(fmt::format("VMRUN rule {} ({}): {}", rule.id, rule.section, rule.text));
    Comparison(run.expect, guest, several ? fmt::format("vmrun {}: ", i + 1) : std::string{}, result)
        .compare(violations);
  }
  result.judge();
  result.trace = std::move(guest.trace);
  return result;
}

}  // namespace svmsim::svm::conformance
