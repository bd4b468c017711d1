#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/kernel_generation.hpp"
#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

/// How the kernel's ring buffer holds the record of one event, and the `format` file that says so. Fields and
/// print formats are those of a kernel generation (arch/x86/kvm/trace.h, include/trace/events). Offsets
/// follow from the natural alignment of the fields, behind the eight bytes that all records begin with.
class RecordLayout {
 public:
  /// Address of the function that writes markers, for kallsyms.
  static constexpr std::uint64_t marker_function = 0xffff'ffff'8100'0000;

  /// Of an event that TraceEvent models; `id` is the number that ties records to the format.
  RecordLayout(EventKind kind, KernelGeneration kernel, std::uint16_t id);
  /// Of any other event: its text and nothing else.
  RecordLayout(std::string_view name, std::uint16_t id);

  [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
  [[nodiscard]] std::string_view system() const noexcept { return system_; }
  /// The text of the kernel's file events/SYSTEM/NAME/format.
  [[nodiscard]] std::string format_file() const;

  /// The record, unpadded. `flags` is common_flags (1 = interrupts off).
  void encode(const TraceEvent& event, const ThreadNames& threads, std::uint8_t flags,
              std::string& record) const;
  void encode_text(std::int32_t tid, std::string_view text, std::string& record) const;

 private:
  /// Where the value of a field comes from.
  enum class Source : std::uint8_t { whole, low, high, vcpu, comm, isa, delivery, trigger, error, state };
  struct Field {
    std::string_view type;
    std::string_view name;
    std::uint16_t size = 4;
    bool is_signed = false;
    Source source = Source::whole;
    std::uint8_t index = 0;
    std::uint16_t offset = 0;
  };

  void add(std::string_view type, std::string_view name, std::uint16_t size, Source source,
           std::uint8_t index = 0, bool is_signed = false);
  void add_kvm_fields(EventKind kind, KernelGeneration kernel);
  void add_other_fields(EventKind kind);
  [[nodiscard]] static std::uint64_t value_of(const Field& field, const TraceEvent& event);

  std::string name_;
  std::string system_;
  std::string print_;
  std::uint16_t id_;
  std::uint16_t end_ = 8;
  bool is_text_ = false;
  std::vector<Field> fields_;
};

/// The `print fmt:` of an event. Empty for a kind without one.
[[nodiscard]] std::string record_print_format(EventKind kind, KernelGeneration kernel);

}  // namespace svmsim::workloads
