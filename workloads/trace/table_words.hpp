#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/trace/stat_table.hpp"

/// Words and numbers in the tables of stat_table.hpp.
namespace svmsim::workloads::table_words {

[[nodiscard]] std::string_view trim(std::string_view text);
[[nodiscard]] std::vector<std::string_view> split(std::string_view text);
/// The cells of `| a | b |`, trimmed.
[[nodiscard]] std::vector<std::string> grid_cells(std::string_view line);

/// The whole text as a number; commas between thousands are allowed.
[[nodiscard]] std::optional<std::uint64_t> whole_number(std::string_view text);
/// A plain decimal fraction, the whole text ("64.00"); blanks inside it, as people draw them, are dropped.
[[nodiscard]] std::optional<double> fraction(std::string_view text);
/// "49.00%", also with a blank before the sign.
[[nodiscard]] std::optional<double> percent(std::string_view text);
/// "0.74us" in ns.
[[nodiscard]] std::optional<double> microseconds(std::string_view text);

/// `@name[KEY]:` of a bpftrace map.
[[nodiscard]] bool bpftrace_key(std::string_view line, std::string_view& key);
/// `vcpu.0.exits.sum=28094008` and its like.
[[nodiscard]] bool is_domstats_line(std::string_view line);
/// `halt_exits 204769`, `halt_exits: 204769` or `.../halt_exits:204769` for a name that is one of KVM's.
[[nodiscard]] bool statistics_line(std::string_view line, std::string_view& name, std::uint64_t& value);
/// A tool's words around its tables, which say nothing more ("Analyze events for all VMs, all VCPUs:").
[[nodiscard]] bool is_heading(std::string_view line);
/// kvm_stat shows tracepoints or debugfs counters: whether the top rows are tracepoints.
[[nodiscard]] bool is_event_table(const StatTable& table);

}  // namespace svmsim::workloads::table_words
