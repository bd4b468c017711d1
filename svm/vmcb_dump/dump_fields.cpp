#include "svm/vmcb_dump/dump_fields.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace svmsim::svm {

namespace {

/// "cs_attrib" is shown as "cs.attrib".
constexpr std::array<std::string_view, 40> segment_names{
#define SVMSIM_NAMES(seg) #seg ".selector", #seg ".attrib", #seg ".limit", #seg ".base"
    SVMSIM_NAMES(es),   SVMSIM_NAMES(cs), SVMSIM_NAMES(ss),   SVMSIM_NAMES(ds),
    SVMSIM_NAMES(fs),   SVMSIM_NAMES(gs), SVMSIM_NAMES(gdtr), SVMSIM_NAMES(ldtr),
    SVMSIM_NAMES(idtr), SVMSIM_NAMES(tr)
#undef SVMSIM_NAMES
};

constexpr std::string_view shown_name(Field field, std::string_view name) {
  const std::size_t index = index_of(field) - index_of(Field::es_selector);
  return index < segment_names.size() ? segment_names[index] : name;
}

template <class Structure>
constexpr std::size_t base_of() {
  return std::is_same_v<Structure, VmcbSave> ? sizeof(VmcbControl) : 0;
}

constexpr std::array<FieldInfo, field_count> table{{
#define SVMSIM_ROW(identifier, structure, member, first, bytes, group, vintage, format, key) \
  FieldInfo{Field::identifier,                                                               \
            shown_name(Field::identifier, #identifier),                                      \
            base_of<structure>() + offsetof(structure, member) + (first),                    \
            bytes,                                                                           \
            FieldGroup::group,                                                               \
            DumpVintage::vintage,                                                            \
            DumpFormat::format,                                                              \
            key},
    SVMSIM_VMCB_FIELDS(SVMSIM_ROW)
#undef SVMSIM_ROW
}};

}  // namespace

const std::array<FieldInfo, field_count>& dump_fields() noexcept {
  return table;
}

const FieldInfo& field_info(Field field) noexcept {
  return table[index_of(field)];
}

std::uint64_t read_field(const Vmcb& vmcb, Field field) noexcept {
  const FieldInfo& info = field_info(field);
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const unsigned char*>(&vmcb) + info.offset,
              std::min(info.bytes, sizeof(value)));
  return value;
}

void write_field(Vmcb& vmcb, Field field, std::uint64_t value) noexcept {
  const FieldInfo& info = field_info(field);
  std::memcpy(reinterpret_cast<unsigned char*>(&vmcb) + info.offset, &value,
              std::min(info.bytes, sizeof(value)));
}

}  // namespace svmsim::svm
