#include "svm/vmcb_fields.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "svm/vmcb_field_table.hpp"

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

/// The bits of a field, or of the attributes of a segment.
const Bits& bits_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Bits> named{
      {"erap_ctl", {{"allow_larger_rap", 0}, {"clear_rap", 1}}},
      {"int_ctl", int_ctl_bits},
      {"int_vector", {{"v_intr_vector", 0, 8}}},
      {"int_state", {{"interrupt_shadow", 0}, {"guest_interrupt_mask", 1}}},
      {"exit_int_info", event_bits},
      {"event_inj", event_bits},
      {"nested_ctl", nested_ctl_bits},
      {"virt_ext", virt_ext_bits},
      {"clean", clean_bits},
      {"avic_physical_id", {{"max_index", 0, 12}}},
      {"efer", efer_bits},
      {"cr0", cr0_bits},
      {"cr4", cr4_bits},
      {"dr6", dr6_bits},
      {"dr7", dr7_bits},
      {"rflags", rflags_bits},
      {"dbgctl", {{"lbr", 0}, {"btf", 1}}},
  };
  static const Bits none;
  if (const auto found = named.find(name); found != named.end()) return found->second;
  constexpr std::string_view attributes = ".attrib";
  const bool attrib =
      name.size() > attributes.size() && name.substr(name.size() - attributes.size()) == attributes;
  return attrib ? attrib_bits : none;
}

/// "cs_attrib" of the table is "cs.attrib".
template <typename Member>
std::string name_of(std::string_view identifier, std::string_view member) {
  if (!std::is_same_v<Member, VmcbSegment>) return std::string{identifier};
  return fmt::format("{}.{}", member, identifier.substr(member.size() + 1));
}

// The intercepts are six words here, and no field is longer than a number.
void add_row(std::vector<VmcbField>& fields, std::string name, std::size_t offset, std::size_t bytes) {
  const bool number = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  if (!number || offset < sizeof(VmcbControl::intercepts)) return;
  const Bits& bits = bits_of(name);
  fields.push_back(
      {std::move(name), static_cast<std::uint16_t>(offset), static_cast<std::uint8_t>(bytes), bits});
}

std::vector<VmcbField> make_fields() {
  std::vector<VmcbField> fields;
  for (unsigned word = 0; word < 6; ++word) {
    fields.push_back({fmt::format("intercepts_{}", word), static_cast<std::uint16_t>(4 * word), 4, {}});
  }
#define SVMSIM_ROW(identifier, structure, member, first, bytes, group, vintage, format, key)               \
  add_row(fields, name_of<decltype(structure::member)>(#identifier, #member),                              \
          (std::is_same_v<structure, VmcbSave> ? offsetof(Vmcb, save) : 0) + offsetof(structure, member) + \
              (first),                                                                                     \
          bytes);
  SVMSIM_VMCB_FIELDS(SVMSIM_ROW)
#undef SVMSIM_ROW
  std::stable_sort(fields.begin(), fields.end(),
                   [](const VmcbField& a, const VmcbField& b) { return a.offset < b.offset; });
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
