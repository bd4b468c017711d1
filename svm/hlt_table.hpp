#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "svm/knobs.hpp"

namespace svmsim::svm {

/// What becomes of a HLT in guest mode at CPL 0.
enum class HltOutcome : std::uint8_t {
  exit_hlt,       ///< #VMEXIT 78h
  exit_idle_hlt,  ///< #VMEXIT A6h
  halts,          ///< no exit: the CPU halts in guest mode; an event that can be taken ends the halt at once
};
/// "78h", "A6h" or "halts".
[[nodiscard]] std::string_view hlt_outcome_text(HltOutcome outcome) noexcept;

/// The readings of "a virtual interrupt is pending", in the order of the table's columns.
inline constexpr std::array<IdleHltPending, 3> hlt_readings{IdleHltPending::raw, IdleHltPending::priority,
                                                            IdleHltPending::deliverable};
[[nodiscard]] std::string_view hlt_reading_name(IdleHltPending reading) noexcept;

using HltOutcomes = std::array<HltOutcome, hlt_readings.size()>;  ///< one per reading

/// One thing that HLT's outcome may depend on.
struct HltInput {
  std::string name;
  std::vector<std::string> values;
  std::string meaning;
};
[[nodiscard]] const std::vector<HltInput>& hlt_inputs();

/// Settings with one outcome: for each input, in the order of hlt_inputs(), whether a value is among them.
struct HltRow {
  std::vector<std::vector<bool>> allowed;
  HltOutcomes outcomes{};
  std::size_t settings = 0;  ///< how many settings it stands for

  [[nodiscard]] bool readings_differ() const noexcept {
    return outcomes[0] != outcomes[1] || outcomes[1] != outcomes[2];
  }
};

/// The answer to: in which settings does HLT exit, with which code, under each reading of the manual? Made by
/// running GuestCpu (VMRUN, then HLT) in every setting and every reading, on a processor with every feature;
/// rows are merged where an input does not matter. Rows may overlap, and then agree; every
/// setting is in one at least.
///
/// Some settings never reach a HLT of real code: an event that can be taken without an interrupt shadow is
/// taken before. Their rows say what HLT would do.
struct HltTable {
  std::vector<HltRow> rows;
  std::size_t settings = 0;
};
[[nodiscard]] HltTable make_hlt_table();

/// One setting: the number of the value of each input.
[[nodiscard]] HltOutcomes run_hlt(const std::vector<std::size_t>& setting);

[[nodiscard]] std::string to_json(const HltTable& table);

}  // namespace svmsim::svm
