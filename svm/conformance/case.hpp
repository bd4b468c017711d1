#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "svm/conformance/suite_case.hpp"
#include "svm/features.hpp"
#include "svm/guest_action.hpp"
#include "svm/intercept.hpp"
#include "svm/knobs.hpp"
#include "svm/processor_limits.hpp"
#include "svm/table_environment.hpp"
#include "svm/vmcb_fields.hpp"

// What a conformance case says, as data: docs/conformance.md describes the file format.

namespace svmsim::svm::conformance {

/// Changes of what is pending at the physical CPU; what is not named stays as it is.
struct PendingChange {
  std::optional<std::vector<std::uint8_t>> intr;
  std::optional<bool> nmi, smi, init;
};

/// Bits of a permission map that are set or cleared, after all of it was filled.
struct MapChange {
  std::optional<std::uint64_t> at;  ///< physical address of the map; absent: the map at every other address
  std::optional<bool> fill;
  std::vector<std::uint32_t> set_read, set_write;  ///< MSRs
  std::vector<std::uint32_t> set, clear;           ///< ports, or both bits of MSRs
};

struct VmcbChange {
  std::vector<std::pair<VmcbPath, std::uint64_t>> fields;
  std::vector<std::pair<Intercept, bool>> intercepts;
};

/// Changes of a TableEnvironment.
struct SurroundingsChange {
  std::optional<std::uint64_t> tsc, tsc_ratio;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> msrs;
  std::vector<std::uint32_t> faulting_msrs;
  std::vector<std::pair<std::uint16_t, std::uint64_t>> ports;
  std::vector<std::pair<std::uint8_t, std::uint64_t>> idt;         ///< handler rIP by vector
  std::vector<std::pair<std::uint8_t, std::uint8_t>> gate_levels;  ///< DPL by vector
  std::vector<std::pair<std::uint64_t, NestedPage>> pages;         ///< by guest physical address
  std::vector<std::pair<std::uint64_t, VmcbChange>> vmcb_pages;    ///< by physical address
  std::optional<std::uint64_t> store;                              ///< of another CPU, to this address
  std::optional<int> avic_irr;
  std::optional<std::uint8_t> avic_ppr;
  std::optional<bool> r_init;
  std::optional<std::array<std::uint64_t, 4>> pdptes;
  std::optional<Vmsa> vmsa;
  std::vector<std::uint64_t> foreign_pages;  ///< addresses
  std::optional<SmiInfo> smi_info;
  MapChange msrpm, iopm;
  PendingChange pending;
};

/// One step of a guest program: an action, or something that happens between actions.
struct ProgramStep {
  enum class Kind : std::uint8_t { action, happens };

  Kind kind = Kind::action;
  std::string text;  ///< as the file has it
  GuestAction action;
  bool has_cpl = false;       ///< false: the CPL that the guest has then
  std::uint64_t cycles = 0;   ///< of `happens`: time that passes
  SurroundingsChange change;  ///< of `happens`
};

using Program = std::vector<ProgramStep>;

/// Where an expected rIP or nRIP lies.
struct ExpectedRip {
  enum class Kind : std::uint8_t { at, after, offset, handler, zero };
  Kind kind = Kind::at;
  std::uint64_t value = 0;  ///< offset from the start of the program, or vector
};

struct ExpectedValue {
  std::string name;  ///< as the file has it: "int_ctl.v_irq"
  VmcbPath path;
  std::uint64_t value = 0;
  std::uint64_t mask = ~std::uint64_t{0};
};

struct Expectation {
  std::optional<std::uint64_t> exit;  ///< absent: the guest does not exit
  std::optional<ExpectedRip> rip, nrip;
  std::vector<ExpectedValue> fields;    ///< of the VMCB, EXITINFO among them
  std::vector<std::uint8_t> delivered;  ///< vectors, in order
  std::optional<std::uint64_t> retired;
  std::optional<bool> halted, shut_down, reset;
  std::optional<std::uint64_t> result;                 ///< of the last retired action
  std::optional<std::vector<std::string>> violations;  ///< ids of the failed VMRUN rules
  PendingChange pending;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> msrs;
  std::vector<std::pair<std::uint16_t, std::uint64_t>> ports;
  std::vector<std::pair<std::uint64_t, std::vector<ExpectedValue>>> vmcb_pages;
  std::optional<std::vector<std::string>> clean_findings;  ///< fields, or names of CleanBitsRule
};

/// One VMRUN of a case: what the hypervisor changes before it, what the guest does, what is expected.
struct CaseRun {
  std::optional<bool> host_if;
  std::optional<unsigned> core;           ///< that runs the guest
  std::optional<std::uint64_t> physical;  ///< address of the VMCB
  VmcbChange vmcb;
  SurroundingsChange surroundings;
  SurroundingsChange more_surroundings;  ///< of the first VMRUN: what its own table adds to the case's
  bool skip = false;               ///< the hypervisor steps over the instruction that the last exit stands at
  std::optional<Program> program;  ///< absent: the guest goes on where it was
  std::map<std::uint8_t, Program> handlers;
  Expectation expect;
};

struct Case : CaseIdentity {
  explicit Case(CaseIdentity identity) : CaseIdentity(std::move(identity)) {}

  FeatureSet features;
  Knobs knobs;
  ProcessorLimits limits;
  std::vector<CaseRun> runs;
};

}  // namespace svmsim::svm::conformance
