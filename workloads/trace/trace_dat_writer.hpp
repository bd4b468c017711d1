#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/trace/trace_dat_layout.hpp"
#include "workloads/trace/trace_writer.hpp"

namespace svmsim::workloads {

/// Writes trace-cmd's binary file, version 6, little endian, such that trace-cmd, KernelShark and libtracecmd
/// open it. Layout (trace-cmd.dat.v6(5); all numbers little endian, strings end with NUL):
///
///     17 08 44 "tracing" "6"\0  u8 0 (little endian)  u8 8 (bytes of a long)  u32 4096 (page size)
///     "header_page"\0   u64 size, text: where in a page its time stamp, its length and its data stand
///     "header_event"\0  u64 size, text: the bits of an entry's header
///     u32 number of ftrace's own events, each: u64 size, format file ("print", if there are markers)
///     u32 number of systems, each: name\0, u32 number of events, each: u64 size, format file
///     u32 size, text: kallsyms (the one function that markers name)
///     u32 size, text: printk formats (none)
///     u64 size, text: "PID COMM" a line
///     u32 number of CPUs, "flyrecord"\0, for each CPU: u64 offset in the file, u64 size
///     at the next multiple of 4096: the pages of CPU 0, then those of CPU 1, ...
///
/// A page is u64 time stamp (ns) of its first entry, u64 bytes of data, data. An entry is u32 type_len (low 5
/// bits) and time since the entry before (27 bits), then the record, padded to four bytes: type_len is its
/// length in words, or 0 when that is above 28; then a u32 with the length, itself included, stands before
/// the record. type_len 30 is no entry but more time: 27 bits and a u32 above them.
///
/// The pages of a CPU must lie together, and which CPUs and events there are is known at the end only: pages
/// wait in a temporary file, and finish() writes the whole.
class TraceDatWriter final : public TraceWriter {
 public:
  TraceDatWriter(std::ostream& out, const TraceWriterOptions& options);
  ~TraceDatWriter() override;

  void write(const TraceEvent& event) override;
  void write_other(const TraceEvent& event, std::string_view name, std::string_view text) override;
  void finish() override;

 private:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t page_header_bytes = 16;
  static constexpr std::size_t kinds = static_cast<std::size_t>(EventKind::other) + 1;

  struct Cpu {
    std::string page;  ///< being filled, without its header
    std::uint64_t first_ns = 0;
    std::uint64_t last_ns = 0;
    std::vector<std::uint32_t> pages;  ///< numbers in the temporary file
  };

  Cpu& cpu_of(const TraceEvent& event);
  void put_record(const TraceEvent& event);
  void flush_page(Cpu& cpu);
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string format_files() const;

  std::ostream& out_;
  TraceWriterOptions options_;
  std::vector<Cpu> cpus_;
  std::vector<std::unique_ptr<RecordLayout>> layouts_;  ///< by kind
  std::map<std::string, RecordLayout, std::less<>> others_;
  std::uint16_t next_id_;
  std::string record_;
  std::FILE* pages_ = nullptr;
  std::uint32_t page_count_ = 0;
  bool failed_ = false;
};

}  // namespace svmsim::workloads
