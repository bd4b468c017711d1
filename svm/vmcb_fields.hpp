#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/vmcb.hpp"

namespace svmsim::svm {

/// Some bits of a VMCB field that have a name of their own.
struct VmcbBits {
  std::string_view name;  ///< snake_case: "v_intr_prio"
  unsigned shift = 0;
  unsigned width = 1;

  [[nodiscard]] constexpr std::uint64_t mask() const noexcept {
    return (width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1) << shift;
  }
};

/// One field of the VMCB under the name that files, messages and Python use: the member of VmcbControl or
/// VmcbSave, the parts of segments as "cs.attrib", the intercept words as "intercepts_0" to "intercepts_5".
struct VmcbField {
  std::string name;
  std::uint16_t offset = 0;  ///< in the 4 KiB page
  std::uint8_t size = 0;     ///< bytes: 1, 2, 4 or 8
  std::vector<VmcbBits> bits;

  [[nodiscard]] std::uint64_t maximum() const noexcept {
    return size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
  }
  [[nodiscard]] const VmcbBits* find(std::string_view bits_name) const noexcept;
};

/// Every field of the VMCB that is a number, by offset: all but reserved areas and byte arrays.
[[nodiscard]] const std::vector<VmcbField>& all_vmcb_fields();
/// The field of that name, or null.
[[nodiscard]] const VmcbField* find_vmcb_field(std::string_view name);

[[nodiscard]] std::uint64_t get_field(const Vmcb& vmcb, const VmcbField& field) noexcept;
/// Higher bits of `value` than the field holds are dropped.
void set_field(Vmcb& vmcb, const VmcbField& field, std::uint64_t value) noexcept;

/// A field, or some bits of one, found by its path: "save.rflags" is no path, "rflags", "cs.limit" and
/// "int_ctl.v_irq" are.
struct VmcbPath {
  const VmcbField* field = nullptr;
  VmcbBits bits;  ///< all bits of the field when the path names no bits

  [[nodiscard]] std::uint64_t maximum() const noexcept { return bits.mask() >> bits.shift; }
  [[nodiscard]] std::uint64_t get(const Vmcb& vmcb) const noexcept {
    return (get_field(vmcb, *field) & bits.mask()) >> bits.shift;
  }
  /// Sets these bits and no others; `value` is at most maximum().
  void set(Vmcb& vmcb, std::uint64_t value) const noexcept {
    set_field(vmcb, *field, (get_field(vmcb, *field) & ~bits.mask()) | ((value << bits.shift) & bits.mask()));
  }
};

/// Nothing when no field or bits have that path; nearest_name(path, vmcb_paths()) is what the user meant.
[[nodiscard]] std::optional<VmcbPath> find_vmcb_path(std::string_view path);
[[nodiscard]] const std::vector<std::string>& vmcb_paths();

}  // namespace svmsim::svm
