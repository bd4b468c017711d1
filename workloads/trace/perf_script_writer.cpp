#include "workloads/trace/perf_script_writer.hpp"

#include <iterator>

#include <fmt/format.h>

#include "workloads/trace/event_system.hpp"
#include "workloads/trace/ftrace_writer.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::size_t flush_bytes = std::size_t{1} << 16;
constexpr std::string_view longest_name = "kvm:kvm_avic_unaccelerated_access";

}  // namespace

PerfScriptWriter::PerfScriptWriter(std::ostream& out, const TraceWriterOptions& options)
    : out_(out), options_(options) {
  buffer_.reserve(flush_bytes + 1024);
}

PerfScriptWriter::~PerfScriptWriter() {
  finish();
}

void PerfScriptWriter::finish() {
  out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  buffer_.clear();
}

void PerfScriptWriter::append_prefix(const TraceEvent& event, std::string_view name) {
  constexpr std::uint64_t giga = 1'000'000'000;
  const auto out = std::back_inserter(buffer_);
  const std::uint64_t ns = tsc_to_ns(event.time, options_.tsc_hz);
  const std::string_view comm = event.tid == 0 ? std::string_view{"swapper"} : threads().comm(event.tid);
  fmt::format_to(out, "{:>16} {:>7} [{:03}] ", comm, event.tid < 0 ? 0 : event.tid,
                 event.cpu < 0 ? 0 : event.cpu);
  if (options_.fraction_digits == 9) {
    fmt::format_to(out, "{:>5}.{:09}: ", ns / giga, ns % giga);
  } else {
    const std::uint64_t us = (ns + 500) / 1000;
    fmt::format_to(out, "{:>5}.{:06}: ", us / 1'000'000, us % 1'000'000);
  }
  const std::string_view system = event_system(name);
  const std::size_t length = system.size() + 1 + name.size();
  if (length < longest_name.size()) buffer_.append(longest_name.size() - length, ' ');
  fmt::format_to(out, "{}:{}: ", system, name);
}

void PerfScriptWriter::write(const TraceEvent& event) {
  if (event.kind == EventKind::svmsim_guest) {
    append_prefix(event, "print");
    buffer_ += "tracing_mark_write: ";
  } else {
    append_prefix(event, event_name(event.kind));
  }
  buffer_ += event_text(event, options_.kernel, &threads());
  buffer_ += '\n';
  if (buffer_.size() >= flush_bytes) finish();
}

void PerfScriptWriter::write_other(const TraceEvent& event, std::string_view name, std::string_view text) {
  append_prefix(event, name);
  buffer_ += text;
  buffer_ += '\n';
  if (buffer_.size() >= flush_bytes) finish();
}

}  // namespace svmsim::workloads
