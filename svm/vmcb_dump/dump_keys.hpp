#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "svm/vmcb_dump/dump_fields.hpp"

namespace svmsim::svm {

enum class DumpKeyKind : std::uint8_t {
  field,
  intercepts,       ///< words 3 and 4: 16 digits, or twice 8
  segment,          ///< "cs:", whose parts follow
  segment_part,     ///< "s:", "a:", "l:", "b:"
  more_register,    ///< not in the VMCB: general registers, and VMSA fields
  control_heading,  ///< "VMCB Control Area:"
  save_heading,     ///< "VMCB State Save Area:"
  vmrun_heading,    ///< "VMCB ..., last attempted VMRUN on CPU n"
  failed_heading,   ///< "KVM: FAILED VMRUN WITH VMCB:"
};

/// What a line of dump_vmcb says before a value.
struct DumpKey {
  DumpKeyKind kind = DumpKeyKind::field;
  Field field{};           ///< of a field; of a segment, its selector
  std::size_t part = 0;    ///< of a segment_part: 0 selector to 3 base
  std::string_view name;   ///< of a more_register
  std::size_t length = 0;  ///< characters of the key, with its colon
};

/// The key that a text begins with. Headings that begin with a guest type or a word before "VMCB" count.
[[nodiscard]] std::optional<DumpKey> dump_key_at(std::string_view text) noexcept;

/// The key of a field in a dump, as a message names it.
[[nodiscard]] std::string_view dump_name(Field field) noexcept;

}  // namespace svmsim::svm
