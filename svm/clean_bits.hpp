#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "svm/features.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmcb_fields.hpp"

namespace svmsim::svm {

/// A VMCB field, or some bits of one, that a clean bit covers (APM vol. 2, 15.15.3).
struct CleanField {
  std::string_view path;  ///< as vmcb_paths() has it: "asid", "int_ctl.v_tpr", "cs.limit"
  VmcbPath field;
  std::uint8_t clean_bit;  ///< number of the bit in the clean field, 0C0h
  bool inferred;           ///< the manual does not list the field under the bit
};

/// Every covered field. What is not in here is read at each VMRUN: TLB_CONTROL, the interrupt shadow,
/// EVENTINJ, the exit fields, RFLAGS, RIP, RSP, RAX.
[[nodiscard]] const std::vector<CleanField>& clean_fields();
/// "I", "IOPM", "ASID", "TPR", "NP", "CRx", "DRx", "DT", "SEG", "CR2", "LBR", "AVIC", "CET"; "" for others.
[[nodiscard]] std::string_view clean_bit_name(unsigned bit) noexcept;

enum class CleanBitsRule : std::uint8_t {
  changed_under_set_bit,  ///< software changed a field and left its clean bit set
  first_run,              ///< the clean field is not 0 at the first VMRUN of this page
  other_core,             ///< not 0 although the VMCB last ran on another core
  moved,                  ///< not 0 although the VMCB page has moved
};

struct CleanBitsFinding {
  CleanBitsRule rule = CleanBitsRule::changed_under_set_bit;
  std::string_view field;       ///< path of the field; changed_under_set_bit only, as all that follows
  std::uint8_t clean_bit = 0;   ///< number of the bit that covers it
  bool inferred = false;        ///< the manual does not list the field under the bit
  std::uint64_t old_value = 0;  ///< what the processor may go on using
  std::uint64_t new_value = 0;  ///< what is in the VMCB
  std::string text;             ///< one sentence without a full stop, for people
};

/// Finds software that changes a VMCB field without clearing its clean bit, or that sets clean bits where the
/// processor must load everything (APM vol. 2, 15.15). It keeps, for each core and VMCB address, the VMCB as
/// it was when it last left the core, as a processor would that caches for ever: worse than any real one, so
/// that what it accepts is right on all. One checker watches all cores. Nothing in svm/ calls it: whoever
/// drives GuestCpu does, around VMRUN and #VMEXIT. Without CPUID VmcbClean it finds nothing, and neither does
/// it under SEV-ES for bits 10:5, which VMRUN ignores there (15.35.8).
///
/// Left out: it cannot see that a page has moved; say so with moved().
class CleanBitsChecker {
 public:
  explicit CleanBitsChecker(FeatureSet features) : enabled_(features.has(Feature::vmcb_clean)) {}

  /// Call right before VMRUN of the VMCB at `physical` on core `core`.
  [[nodiscard]] std::vector<CleanBitsFinding> vmrun(unsigned core, std::uint64_t physical, const Vmcb& vmcb);
  /// Call right after #VMEXIT: what the processor wrote is in its cache too.
  void vmexit(unsigned core, std::uint64_t physical, const Vmcb& vmcb);
  /// Software has moved the VMCB to another page.
  void moved(std::uint64_t from, std::uint64_t to);
  /// The VMCB as a processor sees it that uses its cache wherever the clean bits allow.
  [[nodiscard]] Vmcb as_seen(unsigned core, std::uint64_t physical, const Vmcb& vmcb) const;

 private:
  struct Page {
    bool ran = false;
    bool moved = false;
    unsigned core = 0;  ///< of the last VMRUN
  };

  bool enabled_;
  std::map<std::uint64_t, Page> pages_;
  std::map<std::pair<unsigned, std::uint64_t>, Vmcb> cache_;
};

}  // namespace svmsim::svm
