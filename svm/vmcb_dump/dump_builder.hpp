#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "svm/vmcb_dump/dump_keys.hpp"
#include "svm/vmcb_dump/log_text.hpp"
#include "svm/vmcb_dump/vmcb_image.hpp"

namespace svmsim::svm {

/// Collects the lines of one dump. A value that a folded line has pushed to the next line, or broken in two,
/// is put together; a value with another number of digits than the kernel prints is damaged, and its field
/// counts as missing.
class DumpBuilder {
 public:
  explicit DumpBuilder(const std::string& source);

  void begin_line(const LogLine& line);
  /// The value after a key; returns what follows it.
  [[nodiscard]] std::string_view take(const DumpKey& key, std::string_view rest);
  [[nodiscard]] bool in_segment() const noexcept { return segment_.has_value(); }
  /// A line without any key.
  void continuation(const LogLine& line);
  /// No more lines: gives up values that never came, and works out what is missing.
  void finish();

  [[nodiscard]] bool has_heading() const noexcept { return has_heading_; }
  [[nodiscard]] bool has_vmrun_heading() const noexcept { return has_vmrun_heading_; }
  [[nodiscard]] std::size_t fields() const noexcept { return image_.present.count(); }
  [[nodiscard]] bool has(Field field) const noexcept { return image_.has(field); }
  [[nodiscard]] const VmcbImage& image() const noexcept { return image_; }

 private:
  /// Where a value goes.
  struct Slot {
    std::optional<Field> field;  ///< nothing: a register outside the VMCB
    std::string_view name;       ///< as a message names it
    DumpFormat format = DumpFormat::hex16;
  };

  std::string_view take_value(const Slot& slot, std::string_view rest);
  void store(const Slot& slot, std::string_view digits);
  void damaged(const Slot& slot, std::string_view why);
  void give_up();
  void take_vmrun_heading(std::string_view text);
  void note(std::string text);
  void find_missing();
  void judge_guest_type();

  VmcbImage image_;
  std::optional<Field> segment_;  ///< selector of the segment whose parts are being read
  std::optional<Slot> pending_;   ///< a value that the end of the line has cut
  std::string pending_digits_;
  std::size_t line_ = 0;
  bool line_complete_ = true;
  bool has_heading_ = false;
  bool has_vmrun_heading_ = false;
  bool in_save_area_ = false;
  bool has_general_registers_ = false;
  bool finished_ = false;
};

}  // namespace svmsim::svm
