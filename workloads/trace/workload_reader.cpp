#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "workloads/trace/line_source.hpp"
#include "workloads/trace/text_scanner.hpp"
#include "workloads/trace/workload_file.hpp"
#include "workloads/trace/workload_words.hpp"

namespace svmsim::workloads {

using svm::ActionKind;

namespace {

constexpr std::uint64_t most_vms = 256;
constexpr std::uint64_t most_vcpus = 4096;

constexpr std::string_view magic = "svmsim-workload";
constexpr std::size_t max_problems = 100;

/// Decimal, or hexadecimal after 0x; the whole text.
bool number(std::string_view text, std::uint64_t& value) {
  TextScanner scan(text);
  return (scan.hex_0x(value) || scan.decimal(value)) && scan.at_end();
}

/// A line cut into words; what follows a word that begins with # is a comment.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  TextScanner scan(line);
  for (scan.skip_blanks(); !scan.at_end(); scan.skip_blanks()) {
    const std::string_view word = scan.word();
    if (word.front() == '#') break;
    words.push_back(word);
  }
  return words;
}

class WorkloadReader {
 public:
  explicit WorkloadReader(std::string source) : source_(std::move(source)) {}

  void line(std::string_view text, std::uint64_t number_of_line) {
    line_ = number_of_line;
    const std::vector<std::string_view> words = words_of(text);
    if (words.empty()) return;
    if (!started_) {
      begin(words);
      return;
    }
    const std::string_view head = words.front();
    if (head == "source" || head == "title") {
      TextScanner scan(text);
      scan.skip_blanks();
      scan.word();
      scan.skip_blanks();
      (head == "source" ? workload_.source : workload_.title) = std::string{scan.rest()};
    } else if (!in_vcpu_) {
      file_line(words);
    } else if (head == "end") {
      if (depth_ != 0) problem("end", "an interrupt of this vCPU has no iret");
      chain_rips(workload_.vcpus.back());
      in_vcpu_ = false;
    } else {
      vcpu_line(words);
    }
  }

  ReplayWorkload finish() {
    if (!started_) problem("", fmt::format("is no workload: the first line must be \"{} 1\"", magic));
    if (in_vcpu_) problem("end", "the file ends inside a vCPU");
    if (!problems_.empty()) throw TraceError(std::move(problems_));
    return std::move(workload_);
  }

  void fail(const std::string& message) { problem("", message); }
  [[nodiscard]] bool hopeless() const noexcept { return hopeless_; }

 private:
  void problem(std::string_view path, std::string message, std::string nearest = "") {
    if (problems_.size() < max_problems) {
      problems_.push_back(Problem{source_, line_, std::string{path}, std::move(message), std::move(nearest)});
    }
  }

  void begin(const std::vector<std::string_view>& words) {
    started_ = true;
    if (words.front() != magic) {
      problem("", fmt::format("is no workload: the first line must be \"{} 1\"", magic));
      hopeless_ = true;
    } else if (words.size() != 2 || words[1] != "1") {
      problem(magic, "only version 1 of the format is known");
      hopeless_ = true;
    }
  }

  bool argument(const std::vector<std::string_view>& words, std::size_t index, std::uint64_t maximum,
                std::uint64_t& value) {
    if (index >= words.size()) {
      problem(words.front(), fmt::format("argument {} is missing", index));
      return false;
    }
    return checked(words.front(), words[index], maximum, value);
  }

  bool checked(std::string_view path, std::string_view text, std::uint64_t maximum, std::uint64_t& value) {
    if (!number(text, value)) {
      problem(path, fmt::format("\"{}\" is no number", printable(text)));
      return false;
    }
    if (value > maximum) {
      problem(path, fmt::format("{} is above {}", printable(text), maximum));
      return false;
    }
    return true;
  }

  void unknown(std::string_view what, std::string_view word, const std::vector<std::string>& known) {
    problem(word.substr(0, 64), fmt::format("{} \"{}\" is unknown", what, printable(word)),
            nearest_name(word, known));
  }

  void file_line(const std::vector<std::string_view>& words) {
    std::uint64_t value = 0;
    if (words[0] == "kernel") {
      for (const KernelGeneration kernel :
           {KernelGeneration::v6_1, KernelGeneration::v6_12, KernelGeneration::v6_18}) {
        if (words.size() > 1 && words[1] == kernel_name(kernel)) {
          workload_.kernel = kernel;
          return;
        }
      }
      problem("kernel", "must be 6.1, 6.12 or 6.18");
    } else if (words[0] == "tsc_hz") {
      if (!argument(words, 1, 100'000'000'000, value)) return;
      if (value == 0) problem("tsc_hz", "must be at least 1");
      workload_.tsc_hz = value;
    } else if (words[0] == "time") {
      for (const TimeBase base :
           {TimeBase::none, TimeBase::microseconds, TimeBase::nanoseconds, TimeBase::counter}) {
        if (words.size() > 1 && words[1] == time_base_word(base)) {
          workload_.time_base = base;
          return;
        }
      }
      problem("time", "must be none, microseconds, nanoseconds or counter");
    } else if (words[0] == "idle_hlt") {
      if (words.size() > 1 && (words[1] == "yes" || words[1] == "no")) {
        workload_.idle_hlt = words[1] == "yes";
        return;
      }
      problem("idle_hlt", "must be yes or no");
    } else if (words[0] == "vcpu") {
      std::uint64_t vcpu = 0;
      if (!argument(words, 1, most_vms - 1, value) || !argument(words, 2, most_vcpus - 1, vcpu)) return;
      workload_.vcpus.emplace_back();
      workload_.vcpus.back().vm = static_cast<int>(value);
      workload_.vcpus.back().vcpu = static_cast<int>(vcpu);
      in_vcpu_ = true;
      depth_ = 0;
    } else {
      unknown("the word", words[0], {"source", "title", "kernel", "tsc_hz", "time", "idle_hlt", "vcpu"});
    }
  }

  void vcpu_line(const std::vector<std::string_view>& words) {
    ReplayVcpu& vcpu = workload_.vcpus.back();
    std::uint64_t value = 0;
    std::uint64_t second = 0;
    if (words[0] == "initial") {
      initial(words, vcpu.initial);
    } else if (words[0] == "absent") {
      if (argument(words, 1, UINT64_MAX, value)) vcpu.initial.absent_pages.push_back(value);
    } else if (words[0] == "handler") {
      if (argument(words, 1, 255, value) && argument(words, 2, UINT64_MAX, second)) {
        vcpu.handler_entry[static_cast<std::uint8_t>(value)] = second;
      }
    } else {
      item(words, vcpu);
    }
  }

  void initial(const std::vector<std::string_view>& words, InitialState& state) {
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::size_t equals = words[i].find('=');
      const std::string_view key = words[i].substr(0, equals);
      const std::string_view text =
          equals == std::string_view::npos ? std::string_view{} : words[i].substr(equals + 1);
      std::uint64_t value = 0;
      if (key == "rip") {
        if (checked(key, text, UINT64_MAX, value)) state.rip = value;
      } else if (key == "if") {
        if (checked(key, text, 1, value)) state.interrupts_enabled = value != 0;
      } else if (key == "gdt") {
        if (checked(key, text, UINT64_MAX, value)) state.gdt_base = value;
      } else if (key == "idt") {
        if (checked(key, text, UINT64_MAX, value)) state.idt_base = value;
      } else if (key == "cs") {
        if (checked(key, text, 0xffff, value)) state.code_selector = static_cast<std::uint16_t>(value);
      } else {
        unknown("the key", key, {"rip", "if", "gdt", "idt", "cs"});
      }
    }
  }

  void item(const std::vector<std::string_view>& words, ReplayVcpu& vcpu) {
    ReplayItem result;
    std::size_t used = 1;
    std::uint64_t value = 0;
    if (words[0] == "interrupt") {
      result.kind = ReplayKind::interrupt;
      if (!argument(words, used++, 255, value)) return;
      result.vector = static_cast<std::uint8_t>(value);
      ++depth_;
    } else if (words[0] == "host" || words[0] == "opaque") {
      result.kind = words[0] == "host" ? ReplayKind::host_interrupt : ReplayKind::opaque;
      if (!argument(words, used++, UINT64_MAX, result.exit_code)) return;
    } else if (!action(words, used, result)) {
      return;
    }
    bool has_rip = false;
    bool has_length = false;
    for (; used < words.size(); ++used) {
      if (!key_or_flag(words[used], result, has_rip, has_length)) return;
    }
    svm::GuestAction& a = result.action;
    if (result.kind == ReplayKind::action) {
      if (!has_length) a.length = default_length(a.kind, a.number);
      if (!has_rip) result.flags |= replay_flag::chained;
      if (a.kind == ActionKind::iret && depth_ > 0) --depth_;
    } else if (!has_rip) {
      problem(words[0], "rip= is missing");
      return;
    }
    vcpu.items.push_back(result);
  }

  bool action(const std::vector<std::string_view>& words, std::size_t& used, ReplayItem& result) {
    const std::vector<ActionWord>& known = action_words();
    const auto word =
        std::find_if(known.begin(), known.end(), [&](const ActionWord& w) { return w.word == words[0]; });
    if (word == known.end()) {
      std::vector<std::string> names{"interrupt", "host", "opaque", "initial", "absent", "handler", "end"};
      for (const ActionWord& one : known)
        names.emplace_back(one.word);
      unknown("the word", words[0], names);
      return false;
    }
    result.action.kind = word->kind;
    for (const svm::ActionOperand& operand : word->arguments) {
      std::uint64_t value = 0;
      if (!argument(words, used++, operand.maximum, value)) return false;
      static_cast<void>(svm::set_operand(result.action, operand, value));
    }
    return true;
  }

  bool key_or_flag(std::string_view word, ReplayItem& result, bool& has_rip, bool& has_length) {
    for (const FlagWord& flag : flag_words) {
      if (flag.word != word) continue;
      result.flags |= flag.flag;
      return true;
    }
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view text =
        equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    if (key == "cause") {
      const std::optional<InterruptCause> cause = cause_of_name(text);
      if (cause) {
        result.cause = *cause;
        return true;
      }
      problem(key, "must be unknown, self_ipi, ipi, lapic_timer, device_line, device_msi or host");
      return false;
    }
    struct Key {
      std::string_view name;
      std::uint64_t maximum;
    };
    constexpr std::array<Key, 11> keys{{{"rip", UINT64_MAX},
                                        {"len", 15},
                                        {"size", 64},
                                        {"cpl", 3},
                                        {"cycles", UINT64_MAX},
                                        {"line", UINT64_MAX},
                                        {"info1", UINT64_MAX},
                                        {"info2", UINT64_MAX},
                                        {"sender", INT32_MAX},
                                        {"accepted", UINT64_MAX},
                                        {"source", UINT64_MAX}}};
    const auto found =
        std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.name == key; });
    if (found == keys.end()) {
      std::vector<std::string> names{"cause"};
      for (const Key& one : keys)
        names.emplace_back(one.name);
      for (const FlagWord& flag : flag_words)
        names.emplace_back(flag.word);
      unknown("the key", key, names);
      return false;
    }
    std::uint64_t value = 0;
    if (!checked(key, text, found->maximum, value)) return false;
    switch (found - keys.begin()) {
      case 0:
        result.action.rip = value;
        has_rip = true;
        break;
      case 1:
        result.action.length = static_cast<std::uint8_t>(value);
        has_length = true;
        break;
      case 2:
        result.action.size = static_cast<std::uint8_t>(value);
        break;
      case 3:
        result.action.cpl = static_cast<std::uint8_t>(value);
        break;
      case 4:
        result.action.cycles = value;
        break;
      case 5:
        result.line = value;
        break;
      case 6:
        result.action.operand[0] = value;
        break;
      case 7:
        result.action.operand[1] = value;
        break;
      case 8:
        result.cause_vcpu = static_cast<std::int32_t>(value);
        break;
      case 9:
        result.cause_line = value;
        break;
      default:
        result.source_line = value;
        break;
    }
    return true;
  }

  std::string source_;
  ReplayWorkload workload_;
  std::vector<Problem> problems_;
  std::uint64_t line_ = 0;
  std::size_t depth_ = 0;
  bool started_ = false;
  bool in_vcpu_ = false;
  bool hopeless_ = false;
};

constexpr std::size_t max_line_bytes = 4096;
constexpr unsigned max_expansion = 400;

ReplayWorkload read_lines(std::istream& in, WorkloadReader& reader) {
  LineSource lines(in, max_line_bytes);
  std::string_view line;
  while (!reader.hopeless() && lines.next(line)) {
    reader.line(line, lines.number());
    if (lines.cut()) reader.fail(fmt::format("the line is longer than {} bytes", max_line_bytes));
  }
  return reader.finish();
}

}  // namespace

ReplayWorkload read_workload(std::istream& in, const std::string& source) {
  WorkloadReader reader(source);
  return read_lines(in, reader);
}

ReplayWorkload read_workload_file(const std::string& path) {
  UnpackingFile file(path, max_expansion);
  WorkloadReader reader(path);
  ReplayWorkload workload = read_lines(file.stream(), reader);
  if (const std::string failure = file.failure(); !failure.empty()) {
    throw TraceError(Problem{path, 0, "", failure, ""});
  }
  return workload;
}

bool is_workload_file(const std::string& path) {
  UnpackingFile file(path, max_expansion);
  LineSource lines(file.stream(), max_line_bytes);
  std::string_view line;
  while (lines.next(line)) {
    const std::vector<std::string_view> words = words_of(line);
    if (!words.empty()) return words.front() == magic;
  }
  return false;
}

}  // namespace svmsim::workloads
