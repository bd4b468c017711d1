#include "svm/vmcb_fields.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

namespace svmsim::svm {

namespace {

using Bits = std::vector<VmcbBits>;

const Bits int_ctl_bits{{"v_tpr", 0, 4},      {"v_irq", 8},           {"v_gif", 9},
                        {"v_nmi", 11},        {"v_nmi_mask", 12},     {"v_intr_prio", 16, 4},
                        {"v_ign_tpr", 20},    {"v_intr_masking", 24}, {"v_gif_enable", 25},
                        {"v_nmi_enable", 26}, {"x2avic_enable", 30},  {"avic_enable", 31}};
const Bits event_bits{{"vector", 0, 8}, {"type", 8, 3}, {"error_valid", 11}, {"valid", 31}};
const Bits nested_ctl_bits{{"np_enable", 0},    {"sev_enable", 1},       {"sev_es_enable", 2},
                           {"gmet_enable", 3},  {"sss_check_enable", 4}, {"vte_enable", 5},
                           {"rogpt_enable", 6}, {"invlpgb_enable", 7}};
const Bits virt_ext_bits{
    {"lbr_virtualization", 0}, {"vls", 1}, {"ibs_virtualization", 2}, {"pmc_virtualization", 3}};
const Bits clean_bits{{"intercepts", 0}, {"iopm", 1},  {"asid", 2}, {"intr", 3},     {"np", 4},
                      {"cr", 5},         {"dr", 6},    {"dt", 7},   {"seg", 8},      {"cr2", 9},
                      {"lbr", 10},       {"avic", 11}, {"cet", 12}, {"software", 31}};
const Bits attrib_bits{{"type", 0, 4}, {"s", 4}, {"dpl", 5, 2}, {"p", 7},
                       {"avl", 8},     {"l", 9}, {"d", 10},     {"g", 11}};
const Bits efer_bits{{"sce", 0},    {"lme", 8},  {"lma", 10},     {"nxe", 11},   {"svme", 12},  {"lmsle", 13},
                     {"ffxsr", 14}, {"tce", 15}, {"mcommit", 17}, {"intwb", 18}, {"aibrse", 21}};
const Bits cr0_bits{{"pe", 0},  {"mp", 1},  {"em", 2},  {"ts", 3},  {"et", 4}, {"ne", 5},
                    {"wp", 16}, {"am", 18}, {"nw", 29}, {"cd", 30}, {"pg", 31}};
const Bits cr4_bits{{"vme", 0},         {"pvi", 1},   {"tsd", 2},       {"de", 3},     {"pse", 4},
                    {"pae", 5},         {"mce", 6},   {"pge", 7},       {"pce", 8},    {"osfxsr", 9},
                    {"osxmmexcpt", 10}, {"umip", 11}, {"fsgsbase", 16}, {"pcide", 17}, {"osxsave", 18},
                    {"smep", 20},       {"smap", 21}, {"pke", 22},      {"cet", 23}};
const Bits rflags_bits{{"cf", 0},  {"pf", 2},  {"af", 4},   {"zf", 6},       {"sf", 7},  {"tf", 8},
                       {"if", 9},  {"df", 10}, {"of", 11},  {"iopl", 12, 2}, {"nt", 14}, {"rf", 16},
                       {"vm", 17}, {"ac", 18}, {"vif", 19}, {"vip", 20},     {"id", 21}};
const Bits dr6_bits{{"b0", 0},   {"b1", 1},  {"b2", 2},  {"b3", 3},
                    {"bld", 11}, {"bd", 13}, {"bs", 14}, {"bt", 15}};
const Bits dr7_bits{{"l0", 0}, {"g0", 1}, {"l1", 2}, {"g1", 3}, {"l2", 4}, {"g2", 5},
                    {"l3", 6}, {"g3", 7}, {"le", 8}, {"ge", 9}, {"gd", 13}};

void add_segment(std::vector<VmcbField>& fields, const std::string& name, std::size_t offset) {
  const auto at = [offset](std::size_t inner) { return static_cast<std::uint16_t>(offset + inner); };
  fields.push_back({name + ".selector", at(offsetof(VmcbSegment, selector)), 2, {}});
  fields.push_back({name + ".attrib", at(offsetof(VmcbSegment, attrib)), 2, attrib_bits});
  fields.push_back({name + ".limit", at(offsetof(VmcbSegment, limit)), 4, {}});
  fields.push_back({name + ".base", at(offsetof(VmcbSegment, base)), 8, {}});
}

std::vector<VmcbField> make_fields() {
  std::vector<VmcbField> fields;
  for (unsigned word = 0; word < 6; ++word) {
    fields.push_back({fmt::format("intercepts_{}", word), static_cast<std::uint16_t>(4 * word), 4, {}});
  }
#define SVMSIM_CONTROL(member, ...)                                                                      \
  fields.push_back({#member,                                                                             \
                    static_cast<std::uint16_t>(offsetof(Vmcb, control) + offsetof(VmcbControl, member)), \
                    sizeof(VmcbControl::member), __VA_ARGS__})
#define SVMSIM_SAVE(member, ...)                                                                            \
  fields.push_back({#member, static_cast<std::uint16_t>(offsetof(Vmcb, save) + offsetof(VmcbSave, member)), \
                    sizeof(VmcbSave::member), __VA_ARGS__})
#define SVMSIM_SEGMENT(member) add_segment(fields, #member, offsetof(Vmcb, save) + offsetof(VmcbSave, member))
  SVMSIM_CONTROL(pause_filter_thresh, {});
  SVMSIM_CONTROL(pause_filter_count, {});
  SVMSIM_CONTROL(iopm_base_pa, {});
  SVMSIM_CONTROL(msrpm_base_pa, {});
  SVMSIM_CONTROL(tsc_offset, {});
  SVMSIM_CONTROL(asid, {});
  SVMSIM_CONTROL(tlb_ctl, {});
  SVMSIM_CONTROL(erap_ctl, {{"allow_larger_rap", 0}, {"clear_rap", 1}});
  SVMSIM_CONTROL(int_ctl, int_ctl_bits);
  SVMSIM_CONTROL(int_vector, {{"v_intr_vector", 0, 8}});
  SVMSIM_CONTROL(int_state, {{"interrupt_shadow", 0}, {"guest_interrupt_mask", 1}});
  SVMSIM_CONTROL(exit_code, {});
  SVMSIM_CONTROL(exit_info_1, {});
  SVMSIM_CONTROL(exit_info_2, {});
  SVMSIM_CONTROL(exit_int_info, event_bits);
  SVMSIM_CONTROL(exit_int_info_err, {});
  SVMSIM_CONTROL(nested_ctl, nested_ctl_bits);
  SVMSIM_CONTROL(avic_vapic_bar, {});
  SVMSIM_CONTROL(ghcb_gpa, {});
  SVMSIM_CONTROL(event_inj, event_bits);
  SVMSIM_CONTROL(event_inj_err, {});
  SVMSIM_CONTROL(nested_cr3, {});
  SVMSIM_CONTROL(virt_ext, virt_ext_bits);
  SVMSIM_CONTROL(clean, clean_bits);
  SVMSIM_CONTROL(next_rip, {});
  SVMSIM_CONTROL(insn_len, {});
  SVMSIM_CONTROL(avic_backing_page, {});
  SVMSIM_CONTROL(avic_logical_id, {});
  SVMSIM_CONTROL(avic_physical_id, {{"max_index", 0, 12}});
  SVMSIM_CONTROL(vmsa_pa, {});
  SVMSIM_CONTROL(vmgexit_rax, {});
  SVMSIM_CONTROL(vmgexit_cpl, {});
  SVMSIM_CONTROL(bus_lock_counter, {});
  SVMSIM_CONTROL(update_irr, {});
  SVMSIM_CONTROL(allowed_sev_features, {});
  SVMSIM_CONTROL(guest_sev_features, {});
  SVMSIM_SEGMENT(es);
  SVMSIM_SEGMENT(cs);
  SVMSIM_SEGMENT(ss);
  SVMSIM_SEGMENT(ds);
  SVMSIM_SEGMENT(fs);
  SVMSIM_SEGMENT(gs);
  SVMSIM_SEGMENT(gdtr);
  SVMSIM_SEGMENT(ldtr);
  SVMSIM_SEGMENT(idtr);
  SVMSIM_SEGMENT(tr);
  SVMSIM_SAVE(vmpl, {});
  SVMSIM_SAVE(cpl, {});
  SVMSIM_SAVE(efer, efer_bits);
  SVMSIM_SAVE(cr4, cr4_bits);
  SVMSIM_SAVE(cr3, {});
  SVMSIM_SAVE(cr0, cr0_bits);
  SVMSIM_SAVE(dr7, dr7_bits);
  SVMSIM_SAVE(dr6, dr6_bits);
  SVMSIM_SAVE(rflags, rflags_bits);
  SVMSIM_SAVE(rip, {});
  SVMSIM_SAVE(rsp, {});
  SVMSIM_SAVE(s_cet, {});
  SVMSIM_SAVE(ssp, {});
  SVMSIM_SAVE(isst_addr, {});
  SVMSIM_SAVE(rax, {});
  SVMSIM_SAVE(star, {});
  SVMSIM_SAVE(lstar, {});
  SVMSIM_SAVE(cstar, {});
  SVMSIM_SAVE(sfmask, {});
  SVMSIM_SAVE(kernel_gs_base, {});
  SVMSIM_SAVE(sysenter_cs, {});
  SVMSIM_SAVE(sysenter_esp, {});
  SVMSIM_SAVE(sysenter_eip, {});
  SVMSIM_SAVE(cr2, {});
  SVMSIM_SAVE(g_pat, {});
  SVMSIM_SAVE(dbgctl, {{"lbr", 0}, {"btf", 1}});
  SVMSIM_SAVE(br_from, {});
  SVMSIM_SAVE(br_to, {});
  SVMSIM_SAVE(last_excp_from, {});
  SVMSIM_SAVE(last_excp_to, {});
  SVMSIM_SAVE(spec_ctrl, {});
#undef SVMSIM_SEGMENT
#undef SVMSIM_SAVE
#undef SVMSIM_CONTROL
  return fields;
}

using PathTable = std::unordered_map<std::string_view, VmcbPath>;

/// Names all paths once; the views in the table point into the strings.
struct Paths {
  std::vector<std::string> names;
  PathTable table;

  Paths() {
    std::vector<VmcbPath> paths;
    for (const VmcbField& field : all_vmcb_fields()) {
      names.push_back(field.name);
      paths.push_back({&field, {"", 0, 8U * field.size}});
      for (const VmcbBits& bits : field.bits) {
        names.push_back(fmt::format("{}.{}", field.name, bits.name));
        paths.push_back({&field, bits});
      }
    }
    for (std::size_t i = 0; i < paths.size(); ++i)
      table.emplace(names[i], paths[i]);
  }
};

const Paths& all_paths() {
  static const Paths paths;
  return paths;
}

}  // namespace

const VmcbBits* VmcbField::find(std::string_view bits_name) const noexcept {
  const auto found =
      std::find_if(bits.begin(), bits.end(), [&](const VmcbBits& one) { return one.name == bits_name; });
  return found != bits.end() ? &*found : nullptr;
}

const std::vector<VmcbField>& all_vmcb_fields() {
  static const std::vector<VmcbField> fields = make_fields();
  return fields;
}

const VmcbField* find_vmcb_field(std::string_view name) {
  const auto path = find_vmcb_path(name);
  return path && path->field->name == name ? path->field : nullptr;
}

// The VMCB is little-endian, as the processors are that this is about and runs on.
std::uint64_t get_field(const Vmcb& vmcb, const VmcbField& field) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const std::uint8_t*>(&vmcb) + field.offset, field.size);
  return value;
}

void set_field(Vmcb& vmcb, const VmcbField& field, std::uint64_t value) noexcept {
  std::memcpy(reinterpret_cast<std::uint8_t*>(&vmcb) + field.offset, &value, field.size);
}

std::optional<VmcbPath> find_vmcb_path(std::string_view path) {
  const PathTable& table = all_paths().table;
  const auto found = table.find(path);
  if (found == table.end()) return std::nullopt;
  return found->second;
}

const std::vector<std::string>& vmcb_paths() {
  return all_paths().names;
}

}  // namespace svmsim::svm
