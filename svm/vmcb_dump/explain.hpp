#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "svm/vmcb_dump/decode.hpp"
#include "svm/vmcb_dump/judge.hpp"
#include "svm/vmcb_dump/vmcb_image.hpp"

namespace svmsim::svm {

/// Something that the VMCB shows: a violated rule of VMRUN, or a suspicion.
struct Finding {
  std::string id;
  std::string section;  ///< of APM vol. 2
  std::string text;
  std::string reason;                ///< of a suspicion: why it matters
  std::vector<std::string> because;  ///< the fields that it was judged by, "int_ctl = 0x80000100"
};

/// A rule or suspicion that the file does not allow to judge.
struct Unjudged {
  std::string id;
  std::string text;
  std::vector<std::string> needs;
};

/// All that svmsim vmcb explain says about one VMCB.
struct VmcbReport {
  std::string source;
  std::string kind;  ///< "VMCB page" or "kernel dump"
  std::vector<std::pair<std::string, std::string>> facts;
  DecodedExit exit;
  std::string verdict;  ///< one sentence
  std::vector<Finding> violations;
  std::vector<Finding> suspicions;
  std::vector<Unjudged> unjudged;
  std::vector<std::string> assumptions;
  std::vector<std::string> lost;         ///< fields whose lines are missing or damaged
  std::vector<std::string> not_printed;  ///< fields that this kernel or cut page does not have
  std::vector<std::string> notes;
  std::vector<DecodedGroup> groups;

  [[nodiscard]] bool legal() const noexcept { return violations.empty(); }
};

[[nodiscard]] VmcbReport explain(const VmcbImage& image, const ExplainOptions& options = {});

/// The report as JSON text.
[[nodiscard]] std::string to_json(const VmcbReport& report);

}  // namespace svmsim::svm
