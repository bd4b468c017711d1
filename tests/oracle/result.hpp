#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/features.hpp"
#include "svm/processor_limits.hpp"
#include "tests/oracle/vector.hpp"

namespace svmsim::oracle {

/// What came of a vector: the VMCB after #VMEXIT, and how often each vector was delivered to the guest and to
/// the host.
struct Result {
  std::uint64_t exit_code = 0;
  std::uint64_t info_1 = 0;
  std::uint64_t info_2 = 0;
  std::uint64_t exit_int_info = 0;  ///< with the error code in bits 63:32
  std::uint64_t event_inj = 0;
  std::uint64_t next_rip = 0;
  std::uint64_t int_ctl = 0;  ///< bytes 060h-067h
  std::uint64_t int_state = 0;
  std::uint64_t rip = 0;
  std::uint64_t rflags = 0;
  std::uint64_t rax = 0;
  std::uint64_t cr0 = 0;
  std::uint64_t cr3 = 0;
  std::uint64_t cr4 = 0;
  std::uint64_t efer = 0;
  std::uint64_t dr6 = 0;
  std::uint64_t dr7 = 0;
  std::uint64_t cr2 = 0;
  std::uint64_t cpl = 0;
  std::uint64_t host_events_in_guest = 0;  ///< not 0: the host took an event before STGI
  std::map<unsigned, unsigned> guest_events;
  std::map<unsigned, unsigned> host_events;
};

/// What the kernel says of the processor that it runs on.
struct Processor {
  svm::FeatureSet features;
  svm::ProcessorLimits limits;
  bool has_xsave = false;
  bool has_monitor = false;
  bool has_rdtscp = false;
};

/// A line "R ..." of the kernel, or nothing when it is damaged (an emulator that dies may leave half a line).
[[nodiscard]] std::optional<std::pair<std::uint32_t, Result>> parse_result(std::string_view line);
/// The line "C ...".
[[nodiscard]] std::optional<Processor> parse_processor(std::string_view line);

/// Names of the fields in which two results differ, as far as the architecture defines them for that exit:
/// EXITINFO where the exit code has one, EXITINTINFO where it is valid, nRIP where the processor has it,
/// after a failed VMRUN nothing but the code. `expected` is GuestCpu's.
[[nodiscard]] std::vector<std::string> differences(const Vector& vector, const Processor& processor,
                                                   const Result& expected, const Result& seen);

/// Both results side by side, the differing fields marked.
[[nodiscard]] std::string side_by_side(const Result& expected, const Result& seen,
                                       const std::vector<std::string>& differing);

/// "hlt", "vintr", or the number.
[[nodiscard]] std::string outcome_name(const Result& result);

}  // namespace svmsim::oracle
