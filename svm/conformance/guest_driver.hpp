#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "svm/clean_bits.hpp"
#include "svm/conformance/case.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/table_environment.hpp"

namespace svmsim::svm::conformance {

/// Drives a GuestCpu through the programs of a case: looks for events before every action, enters the program
/// of a handler when something is delivered, and goes on behind the interrupted place after its IRET. After a
/// fault that is the next action, as if the handler had stepped over the faulting one.
class GuestDriver {
 public:
  explicit GuestDriver(const Case& conformance_case);
  /// A guest in surroundings of the caller's, which must outlive it.
  GuestDriver(const Case& conformance_case, TableEnvironment& surroundings);

  /// One VMRUN with all that the hypervisor does before it, until #VMEXIT or the end of the program.
  void run(const CaseRun& run);
  /// More of a guest that has not exited: its next program, or nothing but events and what they interrupted.
  void go_on(const Program& program);

 private:
  std::unique_ptr<TableEnvironment> own_environment_;

 public:
  Vmcb vmcb;
  TableEnvironment& environment;
  GuestCpu cpu;

  // What the last VMRUN led to.
  bool exited = false;
  bool reset = false;
  std::vector<std::uint8_t> delivered;
  std::uint64_t retired = 0;              ///< actions of the main program, a HLT that halts among them
  std::optional<std::uint64_t> result;    ///< of the last of them
  std::uint64_t last_rip = 0;             ///< of the last action begun, at first where the guest entered
  std::uint64_t last_next_rip = 0;        ///< behind it
  std::uint64_t program_rip = 0;          ///< of the start of the program
  std::vector<RuleViolation> violations;  ///< rules that the VMCB failed at VMRUN
  std::vector<CleanBitsFinding> clean_findings;  ///< of the same VMRUN
  std::vector<std::string> trace;

 private:
  struct Place {
    const Program* program = nullptr;
    std::vector<std::uint64_t> rips;  ///< of each step, and of the end
    std::size_t index = 0;            ///< of the next step
    bool faulted = false;             ///< the step before it raised an exception
  };

  [[nodiscard]] static Place place_at(const Program& program, std::uint64_t rip);
  GuestDriver(const Case& conformance_case, std::unique_ptr<TableEnvironment> own);
  void prepare(const CaseRun& run);
  void forget_last_run();
  void run_guest();
  void find_place(std::uint64_t rip);
  [[nodiscard]] bool take_events();
  [[nodiscard]] bool next_step();
  [[nodiscard]] bool after(const Step& step, const std::string& what, bool in_handler, bool iret);
  void deliver(const Step& step);
  [[nodiscard]] std::string place_text(std::uint64_t rip) const;

  std::map<std::uint8_t, Program> handlers_;
  Program iret_;  ///< of every handler that the case does not name
  Program main_;
  std::vector<Place> places_;  ///< the main program, then the handlers that have not returned
  CleanBitsChecker clean_bits_;
  bool host_if_ = true;
  unsigned core_ = 0;
  std::uint64_t physical_ = 0x1000;
};

}  // namespace svmsim::svm::conformance
