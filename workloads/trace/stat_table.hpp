#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workloads/trace/exit_vocabulary.hpp"

namespace svmsim::workloads {

/// One row of a table of counts, as printed. What a layout does not print is absent.
struct StatRow {
  std::uint64_t line = 0;  ///< 1-based
  std::string name;        ///< as printed
  std::string parent;      ///< kvm_stat's child rows: the event that they are part of
  int vcpu = -1;           ///< domstats: the vCPU; -1 = the whole VM
  std::int64_t tid = -1;   ///< bcc: the thread
  std::optional<std::uint64_t> count;
  std::optional<double> share;    ///< of the samples, in percent
  std::optional<double> time_ns;  ///< all of it
  std::optional<double> min_ns;
  std::optional<double> max_ns;
  std::optional<double> mean_ns;
  std::optional<double> error_pct;  ///< standard error of the mean, in percent of it (perf's "+-")
  std::optional<double> rate;       ///< per second
};

/// What the rows of a table are.
enum class TableContent : std::uint8_t {
  exits,       ///< counts by exit reason
  events,      ///< counts by tracepoint (kvm_stat -t), exits among the children
  statistics,  ///< KVM's own counters: debugfs, binary statistics, domstats
  other,       ///< read, but not about KVM (perf stat), or without counts (perf top)
};

/// A table that a tool printed. Formats: "perf kvm stat" (both layouts and hand-drawn grids), "kvm_stat",
/// "libvirt domstats", "kvm statistics", "bcc kvmexit", "bpftrace histogram", "systemtap", "perf top",
/// "perf stat".
struct StatTable {
  std::string format;
  std::string layout;  ///< which of a format's layouts, in words; may be empty
  TableContent content = TableContent::exits;
  std::uint64_t first_line = 0;
  std::vector<StatRow> rows;
  std::optional<std::uint64_t> total_count;  ///< as printed below the table
  std::optional<double> total_time_ns;
  std::optional<Isa> isa;  ///< where the table itself says so
};

}  // namespace svmsim::workloads
