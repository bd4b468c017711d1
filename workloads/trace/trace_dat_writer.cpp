#include "workloads/trace/trace_dat_writer.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "svm/user_error.hpp"
#include "workloads/trace/ftrace_writer.hpp"
#include "workloads/trace/guest_marker.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::size_t most_cpus = 4096;
constexpr std::uint16_t marker_id = 5;  ///< ftrace's own numbers are fixed; 5 is `print`
constexpr std::uint16_t first_id = 300;

template <typename Value>
void put(std::string& text, Value value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_string(std::string& text, std::string_view value) {
  text += value;
  text += '\0';
}
template <typename Size>
void put_file(std::string& text, std::string_view file) {
  put(text, static_cast<Size>(file.size()));
  text += file;
}

std::string page_header(std::size_t data_bytes) {
  std::string text;
  const auto field = [&](std::string_view declaration, std::size_t offset, std::size_t size, int is_signed) {
    text +=
        fmt::format("\tfield: {};\toffset:{};\tsize:{};\tsigned:{};\n", declaration, offset, size, is_signed);
  };
  field("u64 timestamp", 0, 8, 0);
  field("local_t commit", 8, 8, 1);
  field("int overwrite", 8, 1, 1);
  field("char data", 16, data_bytes, 0);
  return text;
}

constexpr std::string_view event_header =
    "# compressed entry header\n"
    "\ttype_len    :    5 bits\n"
    "\ttime_delta  :   27 bits\n"
    "\tarray       :   32 bits\n"
    "\n"
    "\tpadding     : type == 29\n"
    "\ttime_extend : type == 30\n"
    "\ttime_stamp : type == 31\n"
    "\tdata max type_len  == 28\n";

}  // namespace

TraceDatWriter::TraceDatWriter(std::ostream& out, const TraceWriterOptions& options)
    : out_(out), options_(options), layouts_(kinds), next_id_(first_id), pages_(std::tmpfile()) {
  if (pages_ == nullptr) throw UserError(Problem{"", 0, "", "no room for a temporary file", ""});
}

TraceDatWriter::~TraceDatWriter() {
  std::fclose(pages_);
}

TraceDatWriter::Cpu& TraceDatWriter::cpu_of(const TraceEvent& event) {
  const auto index = static_cast<std::size_t>(std::max(event.cpu, 0));
  if (index >= most_cpus) {
    throw UserError(Problem{"", 0, "", fmt::format("trace.dat with a CPU {}", event.cpu), ""});
  }
  if (index >= cpus_.size()) cpus_.resize(index + 1);
  return cpus_[index];
}

void TraceDatWriter::write(const TraceEvent& event) {
  std::unique_ptr<RecordLayout>& layout = layouts_[static_cast<std::size_t>(event.kind)];
  const bool marker = event.kind == EventKind::svmsim_guest;
  if (!layout) {
    layout = std::make_unique<RecordLayout>(event.kind, options_.kernel, marker ? marker_id : next_id_);
    if (!marker) ++next_id_;
  }
  if (marker) {
    layout->encode_text(event.tid, guest_marker::text(event), record_);
  } else {
    const bool interrupts_off =
        event.kind == EventKind::kvm_entry ||
        (event.kind == EventKind::kvm_exit && options_.kernel != KernelGeneration::v6_1);
    layout->encode(event, threads(), interrupts_off ? 1 : 0, record_);
  }
  put_record(event);
}

void TraceDatWriter::write_other(const TraceEvent& event, std::string_view name, std::string_view text) {
  auto found = others_.find(name);
  if (found == others_.end()) {
    if (next_id_ == UINT16_MAX) throw UserError(Problem{"", 0, "", "too many names of events", ""});
    found = others_.emplace(std::string{name}, RecordLayout(name, next_id_++)).first;
  }
  constexpr std::size_t longest_text = 3072;
  found->second.encode_text(event.tid, text.substr(0, longest_text), record_);
  put_record(event);
}

void TraceDatWriter::put_record(const TraceEvent& event) {
  constexpr std::uint32_t word = 4;
  constexpr std::uint32_t longest_short = 28 * word;
  constexpr std::uint64_t longest_delta = (std::uint64_t{1} << 27) - 1;
  Cpu& cpu = cpu_of(event);
  const std::uint64_t ns = tsc_to_ns(event.time, options_.tsc_hz);
  record_.resize((record_.size() + word - 1) / word * word, '\0');
  const auto length = static_cast<std::uint32_t>(record_.size());
  const bool is_long = length > longest_short;
  const std::size_t bytes = word + (is_long ? word : 0) + length;
  constexpr std::size_t extend_bytes = 2 * word;
  if (!cpu.page.empty() &&
      (cpu.page.size() + extend_bytes + bytes > page_bytes - page_header_bytes || ns < cpu.last_ns)) {
    flush_page(cpu);
  }
  if (cpu.page.empty()) {
    cpu.first_ns = ns;
    cpu.last_ns = ns;
  }
  std::uint64_t delta = ns - cpu.last_ns;
  cpu.last_ns = ns;
  if (delta > longest_delta) {
    constexpr std::uint32_t time_extend = 30;
    put(cpu.page, time_extend | static_cast<std::uint32_t>(delta & longest_delta) << 5);
    put(cpu.page, static_cast<std::uint32_t>(delta >> 27));
    delta = 0;
  }
  put(cpu.page, (is_long ? 0 : length / word) | static_cast<std::uint32_t>(delta) << 5);
  if (is_long) put(cpu.page, length + word);
  cpu.page += record_;
}

void TraceDatWriter::flush_page(Cpu& cpu) {
  if (cpu.page.empty()) return;
  std::array<std::uint64_t, 2> head{cpu.first_ns, cpu.page.size()};
  cpu.page.resize(page_bytes - page_header_bytes, '\0');
  failed_ = failed_ || std::fwrite(head.data(), 1, sizeof head, pages_) != sizeof head ||
            std::fwrite(cpu.page.data(), 1, cpu.page.size(), pages_) != cpu.page.size();
  cpu.pages.push_back(page_count_++);
  cpu.page.clear();
}

std::string TraceDatWriter::format_files() const {
  std::map<std::string, std::vector<std::string>, std::less<>> systems;
  std::string text;
  const auto& marker = layouts_[static_cast<std::size_t>(EventKind::svmsim_guest)];
  put(text, std::uint32_t{marker ? 1U : 0U});
  if (marker) put_file<std::uint64_t>(text, marker->format_file());
  for (const auto& layout : layouts_) {
    if (layout && layout != marker) systems[std::string{layout->system()}].push_back(layout->format_file());
  }
  for (const auto& [name, layout] : others_)
    systems[std::string{layout.system()}].push_back(layout.format_file());
  put(text, static_cast<std::uint32_t>(systems.size()));
  for (const auto& [system, files] : systems) {
    put_string(text, system);
    put(text, static_cast<std::uint32_t>(files.size()));
    for (const std::string& file : files)
      put_file<std::uint64_t>(text, file);
  }
  return text;
}

std::string TraceDatWriter::header() const {
  std::string text("\x17\x08\x44tracing");
  put_string(text, "6");
  text += '\0';    // little endian
  text += '\x08';  // bytes of a long
  put(text, static_cast<std::uint32_t>(page_bytes));
  put_string(text, "header_page");
  put_file<std::uint64_t>(text, page_header(page_bytes - page_header_bytes));
  put_string(text, "header_event");
  put_file<std::uint64_t>(text, event_header);
  text += format_files();
  put_file<std::uint32_t>(text, fmt::format("{:016x} T tracing_mark_write\n", RecordLayout::marker_function));
  put_file<std::uint32_t>(text, "");
  std::string comms;
  for (const auto& [tid, comm] : threads().all()) {
    if (tid > 0) comms += fmt::format("{} {}\n", tid, comm);
  }
  put_file<std::uint64_t>(text, comms);
  put(text, static_cast<std::uint32_t>(cpus_.size()));
  put_string(text, "flyrecord");
  return text;
}

void TraceDatWriter::finish() {
  if (cpus_.empty()) cpus_.resize(1);
  for (Cpu& cpu : cpus_)
    flush_page(cpu);
  std::string text = header();
  constexpr std::size_t bytes_per_cpu = 16;
  std::uint64_t offset =
      (text.size() + cpus_.size() * bytes_per_cpu + page_bytes - 1) / page_bytes * page_bytes;
  const std::uint64_t begin = offset;
  for (const Cpu& cpu : cpus_) {
    put(text, offset);
    put(text, std::uint64_t{cpu.pages.size()} * page_bytes);
    offset += std::uint64_t{cpu.pages.size()} * page_bytes;
  }
  text.resize(begin, '\0');
  out_.write(text.data(), static_cast<std::streamsize>(text.size()));
  failed_ = failed_ || std::fflush(pages_) != 0;
  std::array<char, page_bytes> page{};
  for (const Cpu& cpu : cpus_) {
    for (const std::uint32_t number : cpu.pages) {
      const bool read =
          std::fseek(pages_, static_cast<long>(number) * static_cast<long>(page_bytes), SEEK_SET) == 0 &&
          std::fread(page.data(), 1, page.size(), pages_) == page.size();
      failed_ = failed_ || !read;
      out_.write(page.data(), page.size());
    }
  }
  if (failed_) out_.setstate(std::ios::failbit);
}

}  // namespace svmsim::workloads
