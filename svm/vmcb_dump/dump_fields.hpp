#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "svm/vmcb.hpp"
#include "svm/vmcb_field_table.hpp"

namespace svmsim::svm {

/// How KVM's dump_vmcb (arch/x86/kvm/svm/svm.c) prints a field.
enum class DumpFormat : std::uint8_t {
  none,        ///< no kernel prints it
  hex4,        ///< exactly 4 hexadecimal digits
  hex8,        ///< exactly 8
  hex16,       ///< exactly 16
  hex8_or_16,  ///< 8 digits of a 64-bit field, or 16 since the kernel keeps 64 bits of it
  decimal,
};

/// The kernels whose dumps first had a field; a dump that has one field of a vintage should have all of it.
enum class DumpVintage : std::uint8_t {
  v4_4,   ///< the oldest that is read: printed by every kernel since
  v4_17,  ///< PAUSE filter threshold
  v5_11,  ///< SEV-ES: vmsa_pa, ghcb
  v6_16,  ///< VMSA decrypted: type and number of the vCPU, VMPL, SEV features, general registers
  v6_18,  ///< shadow stacks
  v6_19,  ///< ERAPS
  never,  ///< no kernel prints it
};

enum class FieldGroup : std::uint8_t {
  intercepts,
  control,
  interrupts,
  exit,
  paging,
  avic,
  sev,
  segments,
  registers,
  msrs,
};

/// Every field of the VMCB that software or the processor reads or writes. The intercept words are split as
/// KVM's dump prints them, and a segment register is four fields.
enum class Field : std::uint8_t {
#define SVMSIM_ROW(identifier, structure, member, first, bytes, group, vintage, format, key) identifier,
  SVMSIM_VMCB_FIELDS(SVMSIM_ROW)
#undef SVMSIM_ROW
};

#define SVMSIM_ROW(identifier, structure, member, first, bytes, group, vintage, format, key) +1
inline constexpr std::size_t field_count = 0 SVMSIM_VMCB_FIELDS(SVMSIM_ROW);
#undef SVMSIM_ROW

using FieldSet = std::bitset<field_count>;

struct FieldInfo {
  Field field{};
  std::string_view name;   ///< as in Linux' struct vmcb; "cs.attrib" for a part of a segment register
  std::size_t offset = 0;  ///< within the page
  std::size_t bytes = 0;
  FieldGroup group{};
  DumpVintage vintage{};
  DumpFormat format{};
  std::string_view dump_key;  ///< without the colon; "" when it has no line of its own
};

/// All fields, in the order of the enumeration.
[[nodiscard]] const std::array<FieldInfo, field_count>& dump_fields() noexcept;
[[nodiscard]] const FieldInfo& field_info(Field field) noexcept;

[[nodiscard]] constexpr std::size_t index_of(Field field) noexcept {
  return static_cast<std::size_t>(field);
}

/// The value of a field of at most 8 bytes. Longer ones give their first 8 bytes.
[[nodiscard]] std::uint64_t read_field(const Vmcb& vmcb, Field field) noexcept;
void write_field(Vmcb& vmcb, Field field, std::uint64_t value) noexcept;

}  // namespace svmsim::svm
