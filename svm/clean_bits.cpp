#include "svm/clean_bits.hpp"

#include <array>
#include <initializer_list>

#include <fmt/format.h>

#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::svm {

namespace {

constexpr std::array<std::string_view, 13> bit_names{"I",  "IOPM", "ASID", "TPR", "NP",   "CRx", "DRx",
                                                     "DT", "SEG",  "CR2",  "LBR", "AVIC", "CET"};

/// The paths under each clean bit, in the order of the bits.
struct Covered {
  std::initializer_list<std::string_view> listed;
  std::initializer_list<std::string_view> inferred;
};

std::vector<CleanField> make_fields() {
  const std::array<Covered, bit_names.size()> covered{{
      {{"intercepts_0", "intercepts_1", "intercepts_2", "intercepts_3", "intercepts_4", "intercepts_5",
        "tsc_offset", "pause_filter_count"},
       {"pause_filter_thresh"}},
      {{"iopm_base_pa", "msrpm_base_pa"}, {}},
      {{"asid"}, {}},
      {{"int_ctl.v_tpr", "int_ctl.v_irq", "int_ctl.v_intr_prio", "int_ctl.v_ign_tpr",
        "int_ctl.v_intr_masking", "int_vector.v_intr_vector"},
       {"int_ctl.v_gif", "int_ctl.v_nmi", "int_ctl.v_nmi_mask", "int_ctl.v_gif_enable",
        "int_ctl.v_nmi_enable", "int_ctl.x2avic_enable", "int_ctl.avic_enable"}},
      {{"nested_cr3", "g_pat"}, {"nested_ctl.np_enable"}},
      {{"cr0", "cr3", "cr4", "efer"}, {}},
      {{"dr6", "dr7"}, {}},
      {{"gdtr.limit", "gdtr.base", "idtr.limit", "idtr.base"}, {}},
      {{"cs.selector", "cs.attrib", "cs.limit", "cs.base", "ds.selector", "ds.attrib", "ds.limit", "ds.base",
        "ss.selector", "ss.attrib", "ss.limit", "ss.base", "es.selector", "es.attrib", "es.limit", "es.base",
        "cpl"},
       {}},
      {{"cr2"}, {}},
      {{"dbgctl", "br_from", "br_to", "last_excp_from", "last_excp_to"}, {}},
      {{"avic_vapic_bar", "avic_backing_page", "avic_logical_id", "avic_physical_id"}, {}},
      {{"s_cet", "ssp", "isst_addr"}, {}},
  }};
  std::vector<CleanField> fields;
  const auto add = [&fields](std::string_view path, std::size_t bit, bool inferred) {
    const std::optional<VmcbPath> found = find_vmcb_path(path);
    if (!found) throw InternalError(fmt::format("the clean bits cover {}, which is no VMCB field", path));
    fields.push_back({path, *found, static_cast<std::uint8_t>(bit), inferred});
  };
  for (std::size_t bit = 0; bit < covered.size(); ++bit) {
    for (const std::string_view path : covered[bit].listed)
      add(path, bit, false);
    for (const std::string_view path : covered[bit].inferred)
      add(path, bit, true);
  }
  return fields;
}

/// The clean bits that VMRUN looks at.
std::uint32_t used_bits(const Vmcb& vmcb) noexcept {
  constexpr std::uint32_t ignored_under_sev_es =
      clean::cr | clean::dr | clean::dt | clean::seg | clean::cr2 | clean::lbr;
  const std::uint32_t bits = vmcb.control.clean & ((1U << bit_names.size()) - 1);
  return (vmcb.control.nested_ctl & nested_ctl::sev_es_enable) != 0 ? bits & ~ignored_under_sev_es : bits;
}

CleanBitsFinding not_zero(CleanBitsRule rule, std::uint32_t bits, std::string_view why) {
  CleanBitsFinding finding;
  finding.rule = rule;
  finding.new_value = bits;
  finding.text = fmt::format("the clean bits are {:#x} but must be 0: {}", bits, why);
  return finding;
}

}  // namespace

const std::vector<CleanField>& clean_fields() {
  static const std::vector<CleanField> fields = make_fields();
  return fields;
}

std::string_view clean_bit_name(unsigned bit) noexcept {
  return bit < bit_names.size() ? bit_names[bit] : std::string_view{};
}

std::vector<CleanBitsFinding> CleanBitsChecker::vmrun(unsigned core, std::uint64_t physical,
                                                      const Vmcb& vmcb) {
  std::vector<CleanBitsFinding> findings;
  if (!enabled_) return findings;
  Page& page = pages_[physical];
  const std::uint32_t bits = used_bits(vmcb);
  if (bits != 0) {
    if (page.moved) {
      findings.push_back(not_zero(CleanBitsRule::moved, bits, "the VMCB page has moved"));
    } else if (!page.ran) {
      findings.push_back(not_zero(CleanBitsRule::first_run, bits, "this is the first VMRUN of the page"));
    } else if (page.core != core) {
      findings.push_back(
          not_zero(CleanBitsRule::other_core, bits,
                   fmt::format("the VMCB last ran on core {} and now runs on core {}", page.core, core)));
    }
  }
  const auto cached = cache_.find({core, physical});
  if (cached != cache_.end()) {
    for (const CleanField& covered : clean_fields()) {
      if (((bits >> covered.clean_bit) & 1U) == 0) continue;
      const std::uint64_t old_value = covered.field.get(cached->second);
      const std::uint64_t new_value = covered.field.get(vmcb);
      if (old_value == new_value) continue;
      findings.push_back({CleanBitsRule::changed_under_set_bit, covered.path, covered.clean_bit,
                          covered.inferred, old_value, new_value,
                          fmt::format("{} (VMCB {:03x}h) changed from {:#x} to {:#x}, but its clean bit {} "
                                      "({}) is set",
                                      covered.path, covered.field.field->offset, old_value, new_value,
                                      covered.clean_bit, clean_bit_name(covered.clean_bit))});
    }
  }
  page = {true, false, core};
  cache_[{core, physical}] = vmcb;
  return findings;
}

void CleanBitsChecker::vmexit(unsigned core, std::uint64_t physical, const Vmcb& vmcb) {
  if (enabled_) cache_[{core, physical}] = vmcb;
}

void CleanBitsChecker::moved(std::uint64_t from, std::uint64_t to) {
  pages_.erase(from);
  pages_[to] = {true, true, 0};
}

Vmcb CleanBitsChecker::as_seen(unsigned core, std::uint64_t physical, const Vmcb& vmcb) const {
  Vmcb seen = vmcb;
  const auto cached = cache_.find({core, physical});
  if (!enabled_ || cached == cache_.end()) return seen;
  const std::uint32_t bits = used_bits(vmcb);
  for (const CleanField& covered : clean_fields()) {
    if (((bits >> covered.clean_bit) & 1U) != 0) covered.field.set(seen, covered.field.get(cached->second));
  }
  return seen;
}

}  // namespace svmsim::svm
