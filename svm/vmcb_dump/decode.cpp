#include "svm/vmcb_dump/decode.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_fields.hpp"

namespace svmsim::svm {

namespace {

using Meaning = std::vector<std::string>;

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

/// Names of the bits that are set, numbers of wider ones, and what has no name.
Meaning named_bits(std::string_view field_name, std::uint64_t value) {
  Meaning result;
  const VmcbField* field = find_vmcb_field(field_name);
  if (field == nullptr || field->bits.empty()) return result;
  std::uint64_t rest = value;
  for (const VmcbBits& bits : field->bits) {
    const std::uint64_t part = (value & bits.mask()) >> bits.shift;
    rest &= ~bits.mask();
    const bool active_low = field_name == "dr6" && bits.name == "bld";
    if (part == 0 || active_low) continue;
    result.push_back(bits.width == 1 ? upper(bits.name) : fmt::format("{}={}", upper(bits.name), part));
  }
  if (field_name == "rflags") rest &= ~rflags::always_one;
  if (field_name == "dr7") rest &= ~std::uint64_t{0xffff'0400};
  if (field_name == "dr6") rest &= ~std::uint64_t{0xffff'0ff0};
  if (rest != 0) result.push_back(fmt::format("unnamed bits {:#x}", rest));
  return result;
}

/// "CR0 CR3-CR5" for a register mask.
Meaning registers_of(std::string_view prefix, std::uint64_t mask) {
  Meaning result;
  for (unsigned first = 0; first < 16; ++first) {
    if (((mask >> first) & 1U) == 0) continue;
    unsigned last = first;
    while (last < 15 && ((mask >> (last + 1)) & 1U) != 0)
      ++last;
    result.push_back(last == first ? fmt::format("{}{}", prefix, first)
                                   : fmt::format("{}{}-{}{}", prefix, first, prefix, last));
    first = last;
  }
  return result;
}

Meaning intercept_names(unsigned word, std::uint64_t value) {
  Meaning result;
  for (unsigned bit = 0; bit < 32; ++bit) {
    if (((value >> bit) & 1U) == 0) continue;
    const std::string_view name = intercept_name(static_cast<Intercept>(32 * word + bit));
    result.push_back(name.empty() ? fmt::format("reserved bit {}", bit) : std::string(name));
  }
  return result;
}

Meaning segment_meaning(std::uint16_t attrib) {
  Meaning result;
  if ((attrib & segment_attrib::present) == 0) result.emplace_back("not present");
  const unsigned type = attrib & 0xfU;
  if ((attrib & 0x10U) == 0) {
    constexpr std::array<const char*, 16> systems{
        "null",           "16-bit TSS", "LDT", "16-bit TSS, busy", "call gate", "task gate", "interrupt gate",
        "trap gate",      "reserved",   "TSS", "reserved",         "TSS, busy", "call gate", "reserved",
        "interrupt gate", "trap gate"};
    result.emplace_back(attrib == 0 ? "null" : systems[type]);
    if (attrib == 0) return {"null"};
  } else if ((type & 8U) != 0) {
    result.emplace_back((type & 2U) != 0 ? "code, readable" : "code");
    if ((type & 4U) != 0) result.emplace_back("conforming");
  } else {
    result.emplace_back((type & 2U) != 0 ? "data, writable" : "data");
    if ((type & 4U) != 0) result.emplace_back("expand-down");
  }
  result.push_back(fmt::format("DPL {}", (attrib >> 5) & 3U));
  if ((attrib & segment_attrib::long_mode) != 0) {
    result.emplace_back("64-bit (L)");
  } else if ((attrib & 0x10U) != 0) {
    result.emplace_back((attrib & segment_attrib::default_size) != 0 ? "32-bit" : "16-bit");
  }
  if ((attrib & segment_attrib::granularity) != 0) result.emplace_back("G");
  return result;
}

Meaning pat_meaning(std::uint64_t pat) {
  constexpr std::array<const char*, 8> types{"UC", "WC", "reserved", "reserved", "WT", "WP", "WB", "UC-"};
  Meaning result;
  for (unsigned i = 0; i < 8; ++i) {
    const std::uint64_t entry = (pat >> (8 * i)) & 0xff;
    result.push_back(fmt::format("PA{} {}", i, entry < types.size() ? types[entry] : "reserved"));
  }
  return result;
}

Meaning sev_feature_names(std::uint64_t value) {
  constexpr std::array<const char*, 17> names{"SNP_ACTIVE",
                                              "VTOM",
                                              "REFLECT_VC",
                                              "RESTRICTED_INJECTION",
                                              "ALTERNATE_INJECTION",
                                              "DEBUG_SWAP",
                                              "PREVENT_HOST_IBS",
                                              "BTB_ISOLATION",
                                              "VMPL_SSS",
                                              "SECURE_TSC",
                                              "VMGEXIT_PARAMETER",
                                              "PMC_VIRT",
                                              "IBS_VIRT",
                                              "",
                                              "VMSA_REG_PROT",
                                              "SMT_PROTECTION",
                                              "SECURE_AVIC"};
  Meaning result;
  for (unsigned i = 0; i < 64; ++i) {
    if (((value >> i) & 1U) == 0) continue;
    if (i == 63) {
      result.emplace_back("mask is in force");
    } else if (i < names.size() && names[i][0] != 0) {
      result.emplace_back(names[i]);
    } else {
      result.push_back(fmt::format("bit {}", i));
    }
  }
  return result;
}

Meaning ghcb(std::uint64_t value) {
  if (value == 0) return {};
  if ((value & 0xfff) == 0) return {"address of the GHCB"};
  return {fmt::format("MSR protocol request {:#x}", value & 0xfff)};
}

Meaning tlb_control(std::uint64_t value) {
  switch (value) {
    case 0:
      return {"no flush"};
    case 1:
      return {"flush the whole TLB"};
    case 3:
      return {"flush this ASID"};
    case 7:
      return {"flush this ASID's non-global translations"};
    default:
      return {"reserved"};
  }
}

Meaning meaning_of(const VmcbImage& image, const FieldInfo& info, std::uint64_t value) {
  const VmcbControl& control = image.page.control;
  switch (info.field) {
    case Field::cr_read:
    case Field::cr_write:
      return registers_of("CR", value);
    case Field::dr_read:
    case Field::dr_write:
      return registers_of("DR", value);
    case Field::exceptions: {
      Meaning result;
      for (unsigned vector = 0; vector < 32; ++vector) {
        if (((value >> vector) & 1U) != 0)
          result.push_back(exception_name(static_cast<std::uint8_t>(vector)));
      }
      return result;
    }
    case Field::intercepts_3:
      return intercept_names(3, value);
    case Field::intercepts_4:
      return intercept_names(4, value);
    case Field::intercepts_5:
      return intercept_names(5, value);
    case Field::tlb_ctl:
      return tlb_control(value);
    case Field::tsc_offset:
      return {fmt::format("{} cycles", static_cast<std::int64_t>(value))};
    case Field::event_inj:
      return {describe_event(control.event_inj, image.has(Field::event_inj_err) ? control.event_inj_err : 0)};
    case Field::exit_int_info:
      return {describe_event(control.exit_int_info,
                             image.has(Field::exit_int_info_err) ? control.exit_int_info_err : 0)};
    case Field::exit_code: {
      const DecodedExit exit = decode_exit(image);
      return {exit.name};
    }
    case Field::next_rip:
      if (value != 0 && image.has(Field::rip) && image.state_is_the_guests &&
          value - image.page.save.rip <= 15)
        return {fmt::format("rIP + {}", value - image.page.save.rip)};
      return {};
    case Field::avic_physical_id:
      return value == 0 ? Meaning{}
                        : Meaning{fmt::format("table at {:#x}", value & ~std::uint64_t{0xfff}),
                                  fmt::format("MAX_INDEX {}", value & 0xfff)};
    case Field::allowed_sev_features:
    case Field::guest_sev_features:
      return sev_feature_names(value);
    case Field::ghcb_gpa:
      return ghcb(value);
    case Field::g_pat:
      return pat_meaning(value);
    default:
      return named_bits(info.name, value);
  }
}

std::string value_text(const Vmcb& vmcb, const FieldInfo& info) {
  if (info.bytes > 8) {
    std::string text;
    const auto* bytes = reinterpret_cast<const unsigned char*>(&vmcb) + info.offset;
    for (std::size_t i = 0; i < info.bytes; ++i)
      text += fmt::format("{:02x}", bytes[i]);
    return text;
  }
  const std::uint64_t value = read_field(vmcb, info.field);
  if (info.format == DumpFormat::decimal && info.bytes < 8) return fmt::format("{}", value);
  return fmt::format("{:#0{}x}", value, 2 * info.bytes + 2);
}

constexpr std::array<const char*, 10> group_titles{
    "Intercepts", "Control",   "Interrupts and events", "Exit", "Nested paging", "AVIC", "SEV",
    "Segments",   "Registers", "MSRs and the like"};

}  // namespace

std::string exception_name(std::uint8_t vector) {
  constexpr std::array<const char*, 32> names{"#DE", "#DB", "NMI", "#BP", "#OF", "#BR", "#UD", "#NM",
                                              "#DF", "",    "#TS", "#NP", "#SS", "#GP", "#PF", "",
                                              "#MF", "#AC", "#MC", "#XF", "",    "#CP", "",    "",
                                              "",    "",    "",    "",    "#HV", "#VC", "#SX", ""};
  if (vector < names.size() && names[vector][0] != 0) return names[vector];
  return fmt::format("vector {:#x}", vector);
}

std::string describe_event(std::uint32_t event, std::uint32_t error_code) {
  if ((event & event_inj::valid) == 0) return "none";
  const std::uint8_t vector = event_inj::vector(event);
  std::string text;
  switch (event_inj::type(event)) {
    case event_inj::type_intr:
      text = fmt::format("interrupt {:#x}", vector);
      break;
    case event_inj::type_nmi:
      text = "NMI";
      break;
    case event_inj::type_exception:
      text = fmt::format("exception {} ({})", exception_name(vector), vector);
      break;
    case event_inj::type_soft:
      text = fmt::format("software interrupt INT {:#x}", vector);
      break;
    default:
      text = fmt::format("reserved type {}, vector {:#x}", event_inj::type(event), vector);
      break;
  }
  if ((event & event_inj::error_valid) != 0) text += fmt::format(", error code {:#x}", error_code);
  return text;
}

std::string describe_mode(const VmcbImage& image) {
  const VmcbSave& save = image.page.save;
  if (!image.state_is_the_guests || !image.has(Field::cr0) || !image.has(Field::efer)) return {};
  std::string mode;
  if ((save.cr0 & cr0::pe) == 0) {
    mode = (save.cr0 & cr0::pg) != 0 ? "paged real mode" : "real mode";
  } else if ((save.efer & efer::lma) != 0 && (save.cr0 & cr0::pg) != 0) {
    if (!image.has(Field::cs_attrib)) {
      mode = "long mode";
    } else {
      mode = (save.cs.attrib & segment_attrib::long_mode) != 0 ? "64-bit mode" : "compatibility mode";
    }
  } else if (image.has(Field::rflags) && (save.rflags & rflags::virtual_8086) != 0) {
    mode = "virtual-8086 mode";
  } else {
    mode = (save.cr0 & cr0::pg) != 0 ? "protected mode" : "protected mode without paging";
  }
  if (image.has(Field::cpl)) mode += fmt::format(", CPL {}", save.cpl);
  return mode;
}

std::vector<DecodedGroup> decode_fields(const VmcbImage& image) {
  std::vector<DecodedGroup> groups;
  for (const char* title : group_titles)
    groups.push_back({title, {}});
  for (const FieldInfo& info : dump_fields()) {
    DecodedGroup& group = groups[static_cast<std::size_t>(info.group)];
    if (info.group == FieldGroup::segments) {
      const std::size_t part = (index_of(info.field) - index_of(Field::es_selector)) % 4;
      if (part != 0) continue;
      DecodedField row;
      row.name = std::string(info.name.substr(0, info.name.find('.')));
      row.offset = info.offset;
      bool any = false;
      for (std::size_t i = 0; i < 4; ++i) {
        const auto field = static_cast<Field>(index_of(info.field) + i);
        constexpr std::array<const char*, 4> labels{"s: ", "a: ", "l: ", "b: "};  // as the kernel
        any = any || image.has(field);
        if (i != 0) row.value += " ";
        row.value += labels[i];
        const int digits = static_cast<int>(2 * field_info(field).bytes);
        row.value += image.has(field) ? fmt::format("{:0{}x}", read_field(image.page, field), digits)
                                      : std::string("?");
      }
      const bool table = row.name == "gdtr" || row.name == "idtr";
      const auto attrib = static_cast<Field>(index_of(info.field) + 1);
      if (!table && image.has(attrib))
        row.meaning = segment_meaning(static_cast<std::uint16_t>(read_field(image.page, attrib)));
      if (any) group.fields.push_back(std::move(row));
      continue;
    }
    if (!image.has(info.field)) continue;
    group.fields.push_back({std::string(info.name), info.offset, value_text(image.page, info),
                            meaning_of(image, info, read_field(image.page, info.field))});
  }
  if (!image.more_registers.empty()) {
    DecodedGroup more{"Registers outside of the VMCB", {}};
    for (const auto& [name, value] : image.more_registers) {
      more.fields.push_back({name, 0, fmt::format("{:#018x}", value),
                             name == "sev_features" ? sev_feature_names(value) : std::vector<std::string>{}});
    }
    groups.push_back(std::move(more));
  }
  groups.erase(
      std::remove_if(groups.begin(), groups.end(), [](const DecodedGroup& g) { return g.fields.empty(); }),
      groups.end());
  return groups;
}

}  // namespace svmsim::svm
