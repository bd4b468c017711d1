#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "workloads/trace/capture_collector.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/report_builder.hpp"

// The reader of text and tables, the streaming report, and the import of whatever captures come out. The
// first byte chooses what is asked for. Reading twice must give the same, and no line may be counted twice.

using namespace svmsim;
using namespace svmsim::workloads;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ImportOptions options;
  if ((choice & 1U) != 0) {
    options.window_from = EventPattern{"kvm_pio", "at 0x11"};
    options.window_to = EventPattern{"kvm_pio", "at 0x12"};
  }
  if ((choice & 2U) != 0) options.from = CutPoint::parse("line:3", "--from");
  if ((choice & 4U) != 0) options.to = CutPoint::parse("220.7", "--to");
  ReadOptions reading;
  if ((choice & 8U) != 0) reading.max_line_bytes = 80;
  try {
    std::istringstream in(text);
    ReportBuilder builder("fuzz", options);
    make_text_reader(in, "fuzz", reading)->read(builder);
    const ImportReport report = builder.take();
    std::uint64_t events = 0;
    for (const auto& [name, count] : report.events)
      events += count;
    std::uint64_t table_events = 0;
    for (const StatTable& table : report.tables) {
      for (const StatRow& row : table.rows)
        table_events += row.count.value_or(0);
    }
    if (table_events == 0 && events > report.lines) std::abort();
    if (to_json(report).empty() || to_text(report).empty()) std::abort();
  } catch (const UserError&) {
  }
  try {
    std::istringstream in(text);
    CaptureCollector collector("fuzz", reading);
    make_text_reader(in, "fuzz", reading)->read(collector);
    const TraceFile file = collector.take();
    (void)import_report(file, options);
  } catch (const UserError&) {
  }
  return 0;
}
