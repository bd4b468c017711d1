#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>

#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filter/zstd.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "workloads/trace/workload_file.hpp"
#include "workloads/trace/workload_words.hpp"

namespace svmsim::workloads {

using svm::ActionKind;

namespace {

/// The last action that a recording can show.
constexpr ActionKind last_recorded = ActionKind::mov_to_cr8;

/// Loads and stores have shorter names in this format.
std::string_view word_of(const svm::ActionInfo& info) {
  if (info.kind == ActionKind::memory_read) return "read";
  if (info.kind == ActionKind::memory_write) return "write";
  return info.name;
}

bool stands_behind_the_word(const svm::ActionOperand& operand) {
  return operand.field <= svm::ActionField::cycles;
}

}  // namespace

const std::vector<ActionWord>& action_words() {
  static const std::vector<ActionWord> words = [] {
    std::vector<ActionWord> result;
    for (const svm::ActionInfo& info : svm::action_table()) {
      if (info.kind > last_recorded) break;
      ActionWord word{word_of(info), info.kind, {}};
      for (svm::ActionOperand operand : info) {
        if (!stands_behind_the_word(operand)) continue;
        // A recording shows what a register held, also beyond what the instruction takes of it.
        operand.maximum = operand.field == svm::ActionField::number ? UINT32_MAX : UINT64_MAX;
        word.arguments.push_back(operand);
      }
      result.push_back(std::move(word));
    }
    return result;
  }();
  return words;
}

std::string_view time_base_word(TimeBase base) {
  switch (base) {
    case TimeBase::none:
      return "none";
    case TimeBase::microseconds:
      return "microseconds";
    case TimeBase::nanoseconds:
      return "nanoseconds";
    case TimeBase::counter:
      return "counter";
  }
  return "";
}

namespace {

using Output = std::back_insert_iterator<std::string>;

void append_action(Output out, const ReplayItem& item) {
  const svm::GuestAction& action = item.action;
  for (const ActionWord& word : action_words()) {
    if (word.kind != action.kind) continue;
    fmt::format_to(out, "{}", word.word);
    for (const svm::ActionOperand& operand : word.arguments) {
      const std::uint64_t value = svm::get_operand(action, operand);
      if (operand.field == svm::ActionField::cycles) {
        fmt::format_to(out, " {}", value);
      } else {
        fmt::format_to(out, " 0x{:x}", value);
      }
    }
    break;
  }
  if (!item.has(replay_flag::chained)) fmt::format_to(out, " rip=0x{:x}", action.rip);
  if (action.length != default_length(action.kind, action.number))
    fmt::format_to(out, " len={}", action.length);
  if (action.size != 0) fmt::format_to(out, " size={}", action.size);
  if (action.cpl != 0) fmt::format_to(out, " cpl={}", action.cpl);
  if (action.cycles != 0 && action.kind != ActionKind::compute)
    fmt::format_to(out, " cycles={}", action.cycles);
}

void append_item(std::string& text, const ReplayItem& item, std::size_t depth) {
  const Output out = std::back_inserter(text);
  text.append(2 * depth, ' ');
  std::string comment;
  switch (item.kind) {
    case ReplayKind::action:
      append_action(out, item);
      break;
    case ReplayKind::interrupt:
      fmt::format_to(out, "interrupt 0x{:x} rip=0x{:x} cause={}", item.vector, item.action.rip,
                     cause_name(item.cause));
      if (item.cause_vcpu >= 0) fmt::format_to(out, " sender={}", item.cause_vcpu);
      if (item.cause_line != 0) fmt::format_to(out, " accepted={}", item.cause_line);
      if (item.source_line != 0) fmt::format_to(out, " source={}", item.source_line);
      break;
    case ReplayKind::host_interrupt:
    case ReplayKind::opaque:
      fmt::format_to(out, "{} 0x{:x} rip=0x{:x}", item.kind == ReplayKind::opaque ? "opaque" : "host",
                     item.exit_code, item.action.rip);
      if (item.kind == ReplayKind::opaque) {
        fmt::format_to(out, " info1=0x{:x} info2=0x{:x}", item.action.operand[0], item.action.operand[1]);
      }
      comment = svm::exit_name(item.exit_code);
      break;
  }
  if (item.line != 0) fmt::format_to(out, " line={}", item.line);
  for (const FlagWord& flag : flag_words) {
    if (item.has(flag.flag)) fmt::format_to(out, " {}", flag.word);
  }
  if (!comment.empty()) fmt::format_to(out, "  # {}", comment);
  text += '\n';
}

void append_vcpu_head(std::string& text, const ReplayVcpu& vcpu) {
  const Output out = std::back_inserter(text);
  const InitialState& initial = vcpu.initial;
  fmt::format_to(out, "vcpu {} {}\n", vcpu.vm, vcpu.vcpu);
  fmt::format_to(out, "initial rip=0x{:x} if={} gdt=0x{:x} idt=0x{:x} cs={}\n", initial.rip,
                 initial.interrupts_enabled ? 1 : 0, initial.gdt_base, initial.idt_base,
                 initial.code_selector);
  for (const std::uint64_t page : initial.absent_pages)
    fmt::format_to(out, "absent 0x{:x}\n", page);
  for (const auto& [vector, entry] : vcpu.handler_entry)
    fmt::format_to(out, "handler 0x{:x} 0x{:x}\n", vector, entry);
}

}  // namespace

void write_workload(std::ostream& out, const ReplayWorkload& workload) {
  std::string text = "svmsim-workload 1\n";
  if (!workload.source.empty()) text += "source " + printable(workload.source, 4096) + "\n";
  if (!workload.title.empty()) text += "title " + printable(workload.title, 4096) + "\n";
  fmt::format_to(std::back_inserter(text), "kernel {}\ntsc_hz {}\ntime {}\n", kernel_name(workload.kernel),
                 workload.tsc_hz, time_base_word(workload.time_base));
  if (workload.idle_hlt) text += *workload.idle_hlt ? "idle_hlt yes\n" : "idle_hlt no\n";
  for (const ReplayVcpu& vcpu : workload.vcpus) {
    append_vcpu_head(text, vcpu);
    std::size_t depth = 0;
    for (const ReplayItem& item : vcpu.items) {
      append_item(text, item, depth);
      if (item.kind == ReplayKind::interrupt) ++depth;
      if (item.kind == ReplayKind::action && item.action.kind == ActionKind::iret && depth > 0) --depth;
      constexpr std::size_t flush_bytes = std::size_t{1} << 16;
      if (text.size() >= flush_bytes) {
        out.write(text.data(), static_cast<std::streamsize>(text.size()));
        text.clear();
      }
    }
    text += "end\n";
  }
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void write_workload_file(const std::string& path, const ReplayWorkload& workload) {
  namespace io = boost::iostreams;
  const auto ends_with = [&path](std::string_view end) {
    return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
  };
  std::ofstream file(path, std::ios::binary);
  if (file) {
    io::filtering_ostream out;
    if (ends_with(".gz")) out.push(io::gzip_compressor());
    if (ends_with(".zst")) out.push(io::zstd_compressor());
    out.push(file);
    write_workload(out, workload);
    if (!out) file.setstate(std::ios::failbit);
  }
  file.close();
  if (!file) throw TraceError(Problem{path, 0, "", "cannot be written", ""});
}

}  // namespace svmsim::workloads
