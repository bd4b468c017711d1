#include "workloads/trace/workload_adapters.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "svm/user_error.hpp"
#include "workloads/trace/capture.hpp"
#include "workloads/trace/text_scanner.hpp"
#include "workloads/trace/workload_file.hpp"
#include "workloads/trace/workload_words.hpp"

namespace svmsim::workloads {

using svm::ActionKind;

namespace {

constexpr std::uint64_t giga = 1'000'000'000;

[[noreturn]] void refuse(const std::string& path, const std::string& message,
                         const std::string& nearest = "") {
  throw UserError(Problem{"", 0, path, message, nearest});
}

ReplayItem inferred(ActionKind kind) {
  ReplayItem item;
  item.flags = replay_flag::inferred | replay_flag::chained;
  item.action.kind = kind;
  item.action.length = default_length(kind, 0);
  return item;
}

/// Follows IF and the nesting of handlers through the items of a vCPU.
class GuestState {
 public:
  explicit GuestState(bool interrupts_enabled) : enabled_(interrupts_enabled) {}

  void pass(const ReplayItem& item) {
    if (item.kind == ReplayKind::interrupt) {
      ++depth_;
      return;
    }
    if (item.kind != ReplayKind::action) return;
    if (item.action.kind == ActionKind::iret && depth_ > 0) {
      // The interrupt was taken, so IF is on where its handler returns to.
      if (--depth_ == 0) enabled_ = true;
    } else if (depth_ == 0 && item.action.kind == ActionKind::sti) {
      enabled_ = true;
    } else if (depth_ == 0 && item.action.kind == ActionKind::cli) {
      enabled_ = false;
    }
  }
  [[nodiscard]] bool enabled() const noexcept { return enabled_; }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }

 private:
  bool enabled_;
  std::size_t depth_ = 0;
};

std::uint64_t to_ns(std::uint64_t cycles, std::uint64_t tsc_hz) {
  return cycles / tsc_hz * giga + (cycles % tsc_hz * giga + tsc_hz / 2) / tsc_hz;
}

std::uint64_t scaled(std::uint64_t cycles, double factor) {
  const double result = static_cast<double>(cycles) * factor + 0.5;
  constexpr double most = 9.0e18;
  if (!(result < most)) refuse("factor", "makes a time of more than 9e18 cycles");
  return static_cast<std::uint64_t>(result);
}

/// Parts of a vCPU from the first item that is kept to the first that is not.
class Cutter {
 public:
  Cutter(const WorkloadSlice& slice, std::uint64_t tsc_hz) : slice_(slice), tsc_hz_(tsc_hz) {}

  void cut(ReplayVcpu& vcpu) {
    GuestState state(vcpu.initial.interrupts_enabled);
    std::vector<ReplayItem> kept;
    std::uint64_t work = 0;
    bool keeps = false;
    for (ReplayItem& item : vcpu.items) {
      if (state.depth() == 0) {
        const std::uint64_t ns = to_ns(work, tsc_hz_);
        // An item without a line of its own goes with the one behind it.
        const bool begins = ns >= slice_.from_ns && (slice_.from_line == 0 || item.line >= slice_.from_line);
        const bool ends = ns >= slice_.to_ns || (item.line != 0 && item.line >= slice_.to_line);
        if (ends) break;
        if (!keeps && begins) {
          keeps = true;
          vcpu.initial.interrupts_enabled = state.enabled();
          vcpu.initial.rip = item.action.rip;
          item.flags = static_cast<std::uint8_t>(item.flags & ~replay_flag::chained);
        }
      }
      if (item.kind == ReplayKind::action) work += item.action.cycles;
      state.pass(item);
      if (keeps) kept.push_back(item);
    }
    vcpu.items = std::move(kept);
  }

 private:
  const WorkloadSlice& slice_;
  std::uint64_t tsc_hz_;
};

}  // namespace

void repeat_workload(ReplayWorkload& workload, std::uint64_t times) {
  if (times == 0) refuse("times", "must be at least 1", "1");
  constexpr std::uint64_t most_items = 1'000'000'000;
  for (ReplayVcpu& vcpu : workload.vcpus) {
    if (vcpu.items.empty()) continue;
    if (vcpu.items.size() > most_items / times) refuse("times", "makes more than a thousand million items");
    GuestState state(vcpu.initial.interrupts_enabled);
    for (const ReplayItem& item : vcpu.items)
      state.pass(item);
    std::vector<ReplayItem> round = vcpu.items;
    // The guest jumps back: a round begins where the first did.
    round.front().flags = static_cast<std::uint8_t>(round.front().flags & ~replay_flag::chained);
    round.front().flags = static_cast<std::uint8_t>(round.front().flags & ~replay_flag::partial);
    vcpu.items.reserve((round.size() + 2) * times);
    for (std::uint64_t i = 1; i < times; ++i) {
      if (state.enabled() != vcpu.initial.interrupts_enabled)
        vcpu.items.push_back(inferred(state.enabled() ? ActionKind::cli : ActionKind::sti));
      vcpu.items.push_back(inferred(ActionKind::compute));
      vcpu.items.insert(vcpu.items.end(), round.begin(), round.end());
    }
    chain_rips(vcpu);
  }
}

void scale_workload(ReplayWorkload& workload, double factor) {
  if (!std::isfinite(factor) || factor < 0.0) refuse("factor", "must be a number of at least 0");
  for (ReplayVcpu& vcpu : workload.vcpus) {
    for (ReplayItem& item : vcpu.items)
      item.action.cycles = scaled(item.action.cycles, factor);
  }
}

void slice_workload(ReplayWorkload& workload, const WorkloadSlice& slice) {
  std::vector<ReplayVcpu> kept;
  std::map<int, int> vms;                    // old to new
  std::map<std::pair<int, int>, int> vcpus;  // old VM and vCPU to new vCPU
  std::map<int, int> counts;                 // vCPUs of a new VM
  for (ReplayVcpu& vcpu : workload.vcpus) {
    if ((slice.vm && *slice.vm != vcpu.vm) || (slice.vcpu && *slice.vcpu != vcpu.vcpu)) continue;
    const int vm = vms.emplace(vcpu.vm, static_cast<int>(vms.size())).first->second;
    // Numbers stay while every vCPU is kept, also where the recording has gaps.
    const int number = slice.vcpu ? counts[vm]++ : vcpu.vcpu;
    vcpus.emplace(std::make_pair(vcpu.vm, vcpu.vcpu), number);
    kept.push_back(std::move(vcpu));
  }
  if (kept.empty()) refuse("vcpu", "the workload has no such vCPU");
  Cutter cutter(slice, workload.tsc_hz);
  bool any = false;
  for (ReplayVcpu& vcpu : kept) {
    const int old_vm = vcpu.vm;
    cutter.cut(vcpu);
    any = any || !vcpu.items.empty();
    vcpu.vcpu = vcpus.at({old_vm, vcpu.vcpu});
    vcpu.vm = vms.at(old_vm);
    for (ReplayItem& item : vcpu.items) {
      if (item.cause != InterruptCause::ipi || item.cause_vcpu < 0) continue;
      const auto sender = vcpus.find({old_vm, item.cause_vcpu});
      if (sender == vcpus.end()) {
        item.cause = InterruptCause::unknown;
        item.cause_vcpu = -1;
      } else {
        item.cause_vcpu = sender->second;
      }
    }
    chain_rips(vcpu);
  }
  if (!any) refuse("from", "nothing lies between from and to");
  workload.vcpus = std::move(kept);
}

ReplayWorkload merge_workloads(std::vector<ReplayWorkload> workloads) {
  if (workloads.empty()) refuse("", "there is no workload to merge");
  ReplayWorkload merged = std::move(workloads.front());
  const auto vm_count = [](const ReplayWorkload& workload) {
    int count = 0;
    for (const ReplayVcpu& vcpu : workload.vcpus)
      count = std::max(count, vcpu.vm + 1);
    return count;
  };
  for (std::size_t i = 1; i < workloads.size(); ++i) {
    ReplayWorkload& one = workloads[i];
    if (one.kernel != merged.kernel) {
      refuse(one.source, fmt::format("is of kernel {}, the first workload of {}; a host has one kernel",
                                     kernel_name(one.kernel), kernel_name(merged.kernel)));
    }
    if (one.idle_hlt && merged.idle_hlt && *one.idle_hlt != *merged.idle_hlt)
      refuse(one.source, "has another intercept of HLT than the first workload");
    if (!merged.idle_hlt) merged.idle_hlt = one.idle_hlt;
    if (one.time_base != merged.time_base) merged.time_base = TimeBase::none;
    const int first = vm_count(merged);
    const double factor = static_cast<double>(merged.tsc_hz) / static_cast<double>(one.tsc_hz);
    if (one.tsc_hz != merged.tsc_hz) scale_workload(one, factor);
    for (ReplayVcpu& vcpu : one.vcpus) {
      vcpu.vm += first;
      merged.vcpus.push_back(std::move(vcpu));
    }
    if (!one.source.empty()) merged.source += (merged.source.empty() ? "" : ", ") + one.source;
    if (!one.title.empty()) merged.title += (merged.title.empty() ? "" : ", ") + one.title;
  }
  return merged;
}

std::string workload_summary_json(const ReplayWorkload& workload) {
  using Json = nlohmann::ordered_json;
  Json json{{"source", printable(workload.source, 4096)},
            {"title", printable(workload.title, 4096)},
            {"kernel", kernel_name(workload.kernel)},
            {"tsc_hz", workload.tsc_hz},
            {"time", time_base_word(workload.time_base)},
            {"idle_hlt", nullptr},
            {"vcpus", Json::array()}};
  if (workload.idle_hlt) json["idle_hlt"] = *workload.idle_hlt;
  for (const ReplayVcpu& vcpu : workload.vcpus) {
    std::uint64_t work = 0;
    std::uint64_t host = 0;
    std::uint64_t opaque = 0;
    std::map<std::string, std::uint64_t> actions;
    std::map<std::string, std::uint64_t> interrupts;
    for (const ReplayItem& item : vcpu.items) {
      switch (item.kind) {
        case ReplayKind::action:
          work += item.action.cycles;
          ++actions[std::string{svm::action_name(item.action.kind)}];
          break;
        case ReplayKind::interrupt:
          ++interrupts[std::string{cause_name(item.cause)}];
          break;
        case ReplayKind::host_interrupt:
          ++host;
          break;
        case ReplayKind::opaque:
          ++opaque;
          break;
      }
    }
    json["vcpus"].push_back({{"vm", vcpu.vm},
                             {"vcpu", vcpu.vcpu},
                             {"items", vcpu.items.size()},
                             {"guest_work_ns", to_ns(work, workload.tsc_hz)},
                             {"actions", actions},
                             {"interrupts", interrupts},
                             {"host_interrupts", host},
                             {"opaque", opaque}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

namespace {

/// "line:N", or a span of guest work ("10ms").
void parse_point(const std::string& text, const std::string& option, std::uint64_t& line, std::uint64_t& ns) {
  TextScanner scan(text);
  if (scan.literal("line:")) {
    if (scan.decimal(line) && scan.at_end()) return;
  } else {
    std::uint64_t value = 0;
    const std::vector<std::pair<std::string_view, std::uint64_t>> units{
        {"ns", 1}, {"us", 1000}, {"ms", 1'000'000}, {"s", giga}};
    if (scan.decimal(value)) {
      for (const auto& [unit, factor] : units) {
        if (scan.rest() != unit) continue;
        ns = value > UINT64_MAX / factor ? UINT64_MAX : value * factor;
        return;
      }
    }
  }
  refuse(option, fmt::format("\"{}\" is neither line:N nor a time such as 10ms", printable(text)), "10ms");
}

WorkloadSlice parse_slice(const nlohmann::json& operation) {
  WorkloadSlice slice;
  if (operation.contains("vm")) slice.vm = operation["vm"].get<int>();
  if (operation.contains("vcpu")) slice.vcpu = operation["vcpu"].get<int>();
  if (operation.contains("from"))
    parse_point(operation["from"].get<std::string>(), "--from", slice.from_line, slice.from_ns);
  if (operation.contains("to"))
    parse_point(operation["to"].get<std::string>(), "--to", slice.to_line, slice.to_ns);
  return slice;
}

}  // namespace

std::string adapt_workload_files(const std::vector<std::string>& paths, const std::string& output,
                                 const std::string& operation_json) {
  const auto operation = nlohmann::json::parse(operation_json);
  const std::string what = operation.value("do", "show");
  std::vector<ReplayWorkload> workloads;
  for (const std::string& path : paths)
    workloads.push_back(read_workload_file(path));
  ReplayWorkload result =
      what == "merge" ? merge_workloads(std::move(workloads)) : std::move(workloads.at(0));
  if (what == "repeat") {
    repeat_workload(result, operation.at("times").get<std::uint64_t>());
  } else if (what == "scale") {
    scale_workload(result, operation.at("factor").get<double>());
  } else if (what == "slice") {
    slice_workload(result, parse_slice(operation));
  }
  if (!output.empty()) write_workload_file(output, result);
  return workload_summary_json(result);
}

}  // namespace svmsim::workloads
