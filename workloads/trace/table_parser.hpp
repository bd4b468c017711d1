#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/trace/stat_table.hpp"

namespace svmsim::workloads {

/// Recognises the tables of stat_table.hpp line by line, by their heading, or (domstats, KVM's statistics) by
/// their rows. A table ends at the first line that is no row of it.
class TableParser {
 public:
  enum class Verdict : std::uint8_t {
    no,     ///< the line belongs to no table
    taken,  ///< heading, row, rule or footer
    ended,  ///< the line belongs to no table, and the one before it is complete: take()
  };

  /// Offers a line without its quoting. `is_event`: the line reads as a trace event, so only a table that has
  /// begun may claim it.
  [[nodiscard]] Verdict line(std::string_view text, std::uint64_t number, bool is_event);
  /// A table is being read.
  [[nodiscard]] bool active() const noexcept { return layout_ != Layout::none; }
  /// A heading has come while a table was being read: take() first.
  [[nodiscard]] bool complete() const noexcept { return complete_.has_value(); }
  /// The finished table. Ends the current one when none is finished.
  [[nodiscard]] std::optional<StatTable> take();
  /// Reasons that a tool printed between the rows ("unknown kvm exit code:131072 on VMX"), since the last
  /// call.
  [[nodiscard]] std::vector<std::string> take_unknown();

 private:
  enum class Layout : std::uint8_t {
    none,
    perf_us,
    perf_ns,
    grid,
    kvm_stat,
    columns,  ///< bcc and perf-prof: columns by name
    domstats,
    statistics,
    bpftrace,
    systemtap,
    perf_top,
    perf_stat,
  };

  bool begin(std::string_view text, std::uint64_t number);
  void start(Layout layout, std::string_view format, std::string_view name, TableContent content,
             std::uint64_t number);
  bool row(std::string_view text, std::uint64_t number);
  bool perf_us_row(std::string_view text, std::uint64_t number);
  bool perf_ns_row(std::string_view text, std::uint64_t number);
  bool grid_row(std::string_view text, std::uint64_t number);
  bool kvm_stat_row(std::string_view text, std::uint64_t number);
  bool columns_row(std::string_view text, std::uint64_t number);
  bool domstats_row(std::string_view text, std::uint64_t number);
  bool statistics_row(std::string_view text, std::uint64_t number);
  bool bpftrace_row(std::string_view text, std::uint64_t number);
  bool systemtap_row(std::string_view text, std::uint64_t number);
  bool perf_top_row(std::string_view text, std::uint64_t number);
  bool perf_stat_row(std::string_view text, std::uint64_t number);
  StatRow& add(std::string_view name, std::uint64_t number);
  void end();

  Layout layout_ = Layout::none;
  StatTable table_;
  std::optional<StatTable> complete_;
  std::vector<std::string> unknown_;
  std::vector<std::string> columns_;
  std::size_t indent_ = 0;
  std::string parent_;
};

}  // namespace svmsim::workloads
