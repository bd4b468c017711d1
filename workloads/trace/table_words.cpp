#include "workloads/trace/table_words.hpp"

#include <algorithm>
#include <array>

#include "workloads/trace/text_scanner.hpp"

namespace svmsim::workloads::table_words {

namespace {

// KVM's x86 statistics by name (arch/x86/kvm/x86.c, virt/kvm/kvm_main.c), per VM and per vCPU, of old and new
// kernels.
constexpr std::array<std::string_view, 66> statistics{"exits",
                                                      "halt_exits",
                                                      "halt_wakeup",
                                                      "halt_attempted_poll",
                                                      "halt_successful_poll",
                                                      "halt_poll_invalid",
                                                      "halt_poll_success_ns",
                                                      "halt_poll_fail_ns",
                                                      "halt_poll_success_hist",
                                                      "halt_poll_fail_hist",
                                                      "halt_wait_ns",
                                                      "halt_wait_hist",
                                                      "blocking",
                                                      "irq_exits",
                                                      "irq_injections",
                                                      "irq_window",
                                                      "irq_window_exits",
                                                      "nmi_injections",
                                                      "nmi_window",
                                                      "nmi_window_exits",
                                                      "io_exits",
                                                      "mmio_exits",
                                                      "signal_exits",
                                                      "request_irq",
                                                      "request_irq_exits",
                                                      "host_state_reload",
                                                      "fpu_reload",
                                                      "insn_emulation",
                                                      "insn_emulation_fail",
                                                      "hypercalls",
                                                      "preemption_reported",
                                                      "preemption_other",
                                                      "directed_yield_attempted",
                                                      "directed_yield_successful",
                                                      "guest_mode",
                                                      "nested_run",
                                                      "notify_window_exits",
                                                      "req_event",
                                                      "pf_fixed",
                                                      "pf_guest",
                                                      "pf_taken",
                                                      "pf_fast",
                                                      "pf_emulate",
                                                      "pf_spurious",
                                                      "pf_mmio_spte_created",
                                                      "tlb_flush",
                                                      "remote_tlb_flush",
                                                      "remote_tlb_flush_requests",
                                                      "invlpg",
                                                      "l1d_flush",
                                                      "largepages",
                                                      "efer_reload",
                                                      "mmu_cache_miss",
                                                      "mmu_flooded",
                                                      "mmu_pde_zapped",
                                                      "mmu_pte_updated",
                                                      "mmu_pte_write",
                                                      "mmu_recycled",
                                                      "mmu_shadow_zapped",
                                                      "mmu_unsync",
                                                      "nx_lpage_splits",
                                                      "max_mmu_page_hash_collisions",
                                                      "max_mmu_rmap_size",
                                                      "pages_4k",
                                                      "pages_2m",
                                                      "pages_1g"};

bool is_statistic(std::string_view name) {
  return std::find(statistics.begin(), statistics.end(), name) != statistics.end();
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

}  // namespace

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  TextScanner scan(text);
  for (scan.skip_blanks(); !scan.at_end(); scan.skip_blanks())
    words.push_back(scan.word());
  return words;
}

std::vector<std::string> grid_cells(std::string_view line) {
  std::vector<std::string> cells;
  line = trim(line);
  if (!line.empty() && line.front() == '|') line.remove_prefix(1);
  while (!line.empty()) {
    const std::size_t bar = line.find('|');
    cells.emplace_back(trim(line.substr(0, bar)));
    if (bar == std::string_view::npos) break;
    line.remove_prefix(bar + 1);
  }
  if (cells.empty()) cells.emplace_back();
  return cells;
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  if (text.empty() || text.size() > 26 || text.front() == ',' || text.back() == ',') return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c == ',') continue;
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

std::optional<double> fraction(std::string_view text) {
  constexpr std::size_t longest = 32;
  if (text.empty() || text.size() > longest) return std::nullopt;
  double value = 0;
  double scale = 1;
  bool point = false;
  bool digits = false;
  for (const char c : text) {
    if (is_blank(c)) continue;
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      digits = true;
      if (point) scale *= 10;
      value = value * 10 + (c - '0');
    } else {
      return std::nullopt;
    }
  }
  return digits ? std::optional{value / scale} : std::nullopt;
}

std::optional<double> percent(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.back() != '%') return std::nullopt;
  return fraction(text.substr(0, text.size() - 1));
}

std::optional<double> microseconds(std::string_view text) {
  if (text.size() < 3 || text.substr(text.size() - 2) != "us") return std::nullopt;
  const std::optional<double> value = fraction(text.substr(0, text.size() - 2));
  return value ? std::optional{*value * 1000} : std::nullopt;
}

bool bpftrace_key(std::string_view line, std::string_view& key) {
  const std::size_t open = line.find('[');
  const std::size_t close = line.rfind("]:");
  if (line.empty() || line.front() != '@' || open == std::string_view::npos ||
      close == std::string_view::npos || close < open) {
    return false;
  }
  key = trim(line.substr(open + 1, close - open - 1));
  while (!key.empty() && (key.back() == ',' || is_blank(key.back())))
    key.remove_suffix(1);
  return true;
}

bool is_domstats_line(std::string_view line) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = line.substr(0, equals);
  if (name.find(' ') != std::string_view::npos) return false;
  return name.substr(0, 5) == "vcpu." || name.substr(0, 4) == "cpu.";
}

bool statistics_line(std::string_view line, std::string_view& name, std::uint64_t& value) {
  const std::size_t end = line.find_last_of(": \t");
  if (end == std::string_view::npos) return false;
  const std::optional<std::uint64_t> number = whole_number(line.substr(end + 1));
  std::string_view key = trim(line.substr(0, end));
  if (!key.empty() && key.back() == ':') key.remove_suffix(1);
  const std::size_t slash = key.rfind('/');
  if (slash != std::string_view::npos) key.remove_prefix(slash + 1);
  if (!number || !is_statistic(key)) return false;
  name = key;
  value = *number;
  return true;
}

bool is_heading(std::string_view line) {
  line = trim(line);
  for (const std::string_view beginning :
       {"Analyze events for ", "Attaching ", "Tracing KVM exits", "kvm statistics - summary",
        "Display kvm exit", "Tracing KVM exit", "Kernel pid", "Processed "}) {
    if (line.substr(0, beginning.size()) == beginning) return true;
  }
  return false;
}

bool is_event_table(const StatTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [](const StatRow& row) { return row.parent.empty() && row.name.rfind("kvm_", 0) == 0; });
}

}  // namespace svmsim::workloads::table_words
