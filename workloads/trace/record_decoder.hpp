#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

/// Where a field stands in a record of the ring buffer, as the kernel's format file says.
struct RawField {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  bool is_signed = false;
};

/// What reads the records of one event id.
class RecordDecoder {
 public:
  /// Finds a field of the event by name; false when its format has none.
  using Lookup = std::function<bool(const char* name, RawField& field)>;

  RecordDecoder() = default;
  RecordDecoder(EventKind kind, const Lookup& lookup);

  [[nodiscard]] EventKind kind() const noexcept { return kind_; }
  /// Fills `event` from the raw record; false when the record is shorter than its format.
  [[nodiscard]] bool decode(const unsigned char* data, std::size_t size, TraceEvent& event) const;
  /// The names in a record of sched_switch (previous, next), sched_waking and sched_wakeup (woken, "").
  [[nodiscard]] std::array<std::string_view, 2> comms(const unsigned char* data, std::size_t size) const;
  /// `isa` of kvm_exit: 1 VMX, 2 SVM; 0 when the record does not say.
  [[nodiscard]] std::uint64_t isa(const unsigned char* data, std::size_t size) const;

 private:
  enum class Target : std::uint8_t { whole, low, high, vcpu };
  struct Part {
    RawField field;
    Target target = Target::whole;
    std::uint8_t index = 0;
  };

  void add(const Lookup& lookup, const char* name, Target target, std::uint8_t index, bool required = true);
  void finish(TraceEvent& event) const;

  EventKind kind_ = EventKind::other;
  std::vector<Part> parts_;
  std::array<RawField, 2> comms_{};
  RawField isa_;
  std::uint8_t absent_ = 0;
};

}  // namespace svmsim::workloads
