#include "workloads/trace/vcpu_stream.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "workloads/trace/ftrace_writer.hpp"

namespace svmsim::workloads {

namespace {

bool is_entry_or_exit(const TraceEvent& event) {
  return event.kind == EventKind::kvm_entry || event.kind == EventKind::kvm_exit;
}

/// Lines with a thread: the thread is the vCPU.
std::vector<VcpuStream> by_thread(const Capture& capture) {
  std::map<std::int32_t, std::size_t> index;
  std::map<int, int> vms_of_vcpu;
  std::vector<VcpuStream> streams;
  for (const TraceEvent& event : capture.events) {
    if (event.tid < 0 || !is_entry_or_exit(event) || event.vcpu < 0 || index.count(event.tid) != 0) continue;
    index.emplace(event.tid, streams.size());
    VcpuStream& stream = streams.emplace_back();
    stream.vcpu = event.vcpu;
    stream.vm = vms_of_vcpu[event.vcpu]++;
    stream.tid = event.tid;
  }
  for (std::size_t i = 0; i < capture.events.size(); ++i) {
    const auto found = index.find(capture.events[i].tid);
    if (found != index.end()) streams[found->second].events.push_back(static_cast<std::uint32_t>(i));
  }
  return streams;
}

/// Lines without a thread: only kvm_entry and kvm_exit say whose they are; what stands between belongs to the
/// vCPU that left its guest last and is still in the host.
class VcpuSplitter {
 public:
  void add(const TraceEvent& event, std::uint32_t index) {
    if (is_entry_or_exit(event)) {
      current_ = event.vcpu >= 0 ? stream_of(event.vcpu) : current_ == none ? stream_of(0) : current_;
      std::vector<std::uint32_t>& events = streams_[current_].events;
      events.insert(events.end(), waiting_.begin(), waiting_.end());
      waiting_.clear();
      in_host_[current_] = event.kind == EventKind::kvm_exit;
      events.push_back(index);
      return;
    }
    if (current_ == none) {
      waiting_.push_back(index);  // before anything: of whoever enters first
      return;
    }
    if (!in_host_[current_]) {
      const auto other = std::find(in_host_.begin(), in_host_.end(), true);
      if (other != in_host_.end()) current_ = static_cast<std::size_t>(other - in_host_.begin());
    }
    streams_[current_].events.push_back(index);
  }

  std::vector<VcpuStream> take() { return std::move(streams_); }

 private:
  static constexpr std::size_t none = SIZE_MAX;

  std::size_t stream_of(int vcpu) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (streams_[i].vcpu == vcpu) return i;
    }
    streams_.emplace_back().vcpu = vcpu;
    in_host_.push_back(false);
    return streams_.size() - 1;
  }

  std::vector<VcpuStream> streams_;
  std::vector<bool> in_host_;
  std::vector<std::uint32_t> waiting_;
  std::size_t current_ = none;
};

/// 6.18 prints the accepted interrupt before the IPI that brought it, older kernels after.
/// 0 = no such pair in the stream, 1 = IPI first, 2 = accept first.
int accept_order(const Capture& capture, const VcpuStream& stream) {
  for (std::size_t i = 1; i < stream.events.size(); ++i) {
    const TraceEvent& before = capture.events[stream.events[i - 1]];
    const TraceEvent& after = capture.events[stream.events[i]];
    if (before.kind == EventKind::kvm_apic_ipi && after.kind == EventKind::kvm_apic_accept_irq) return 1;
    if (before.kind == EventKind::kvm_apic_accept_irq && after.kind == EventKind::kvm_apic_ipi) return 2;
  }
  return 0;
}

/// 6.1 prints kvm_exit behind its WRMSR fastpath: kvm_msr stands between kvm_entry and kvm_exit.
bool exit_after_fastpath(const Capture& capture, const VcpuStream& stream) {
  bool in_guest = false;
  bool detail = false;
  for (const std::uint32_t index : stream.events) {
    const EventKind kind = capture.events[index].kind;
    if (kind == EventKind::kvm_entry) {
      in_guest = true;
      detail = false;
    } else if (kind == EventKind::kvm_msr && in_guest) {
      detail = true;
    } else if (kind == EventKind::kvm_exit) {
      if (detail) return true;
      in_guest = false;
    }
  }
  return false;
}

}  // namespace

std::vector<VcpuStream> split_streams(const Capture& capture) {
  const bool threads = std::any_of(capture.events.begin(), capture.events.end(), [](const TraceEvent& event) {
    return is_entry_or_exit(event) && event.tid >= 0;
  });
  std::vector<VcpuStream> streams;
  if (threads) {
    streams = by_thread(capture);
  } else {
    VcpuSplitter splitter;
    for (std::size_t i = 0; i < capture.events.size(); ++i) {
      splitter.add(capture.events[i], static_cast<std::uint32_t>(i));
    }
    streams = splitter.take();
  }
  std::stable_sort(streams.begin(), streams.end(), [](const VcpuStream& a, const VcpuStream& b) {
    return a.vm != b.vm ? a.vm < b.vm : a.vcpu < b.vcpu;
  });
  return streams;
}

EventPattern EventPattern::parse(std::string_view pattern) {
  const std::size_t colon = pattern.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    throw UserError(Problem{"", 0, "window",
                            fmt::format("\"{}\" is not of the form event:text", printable(pattern)),
                            "kvm_pio:at 0x11"});
  }
  return {std::string{pattern.substr(0, colon)}, std::string{pattern.substr(colon + 1)}};
}

bool cut_window(const Capture& capture, KernelGeneration kernel, const EventPattern& from,
                const EventPattern& to, VcpuStream& stream) {
  const auto find = [&](const EventPattern& pattern, std::size_t start) {
    for (std::size_t i = start; i < stream.events.size(); ++i) {
      const TraceEvent& event = capture.events[stream.events[i]];
      if (capture.name_of(event) != pattern.event) continue;
      const std::string text = event.kind == EventKind::other ? std::string{capture.other_text_of(event)}
                                                              : event_text(event, kernel, &capture.threads);
      if (text.find(pattern.text) != std::string::npos) return i;
    }
    return stream.events.size();
  };
  const auto kind_at = [&](std::size_t i) { return capture.events[stream.events[i]].kind; };
  const std::size_t first = find(from, 0);
  if (first == stream.events.size()) return false;
  const std::size_t second = find(to, first + 1);
  if (second == stream.events.size()) return false;
  std::size_t begin = first;
  while (begin < second && kind_at(begin) != EventKind::kvm_entry)
    ++begin;
  std::size_t end = second;
  while (end > begin && kind_at(end) != EventKind::kvm_exit)
    --end;
  const auto at = [&](std::size_t i) { return stream.events.begin() + static_cast<std::ptrdiff_t>(i); };
  stream.events = std::vector<std::uint32_t>(at(begin), at(end));
  return true;
}

GenerationGuess infer_generation(const Capture& capture, const std::vector<VcpuStream>& streams) {
  for (const TraceEvent& event : capture.events) {
    if (event.kind == EventKind::kvm_entry && event.has_field(1)) {
      return {KernelGeneration::v6_18, true, "kvm_entry prints intr_info"};
    }
    if (event.kind == EventKind::kvm_exit && event.has_field(5)) {
      return {KernelGeneration::v6_18, true, "kvm_exit prints requests"};
    }
  }
  int order = 0;
  for (const VcpuStream& stream : streams) {
    if (exit_after_fastpath(capture, stream)) {
      return {KernelGeneration::v6_1, true, "kvm_exit stands behind the events of its WRMSR fastpath"};
    }
    if (order == 0) order = accept_order(capture, stream);
  }
  if (order == 2)
    return {KernelGeneration::v6_18, true, "kvm_apic_accept_irq stands before its kvm_apic_ipi"};
  for (const TraceEvent& event : capture.events) {
    if (capture.name_of(event) != "kvm_apicv_inhibit_changed") continue;
    // "set reason=0, inhibits=0x1 DISABLED": the names came after 6.1.
    const std::string_view text = capture.other_text_of(event);
    const std::size_t mask = text.find("inhibits=0x");
    if (mask == std::string_view::npos || text.substr(mask).rfind("inhibits=0x0", 0) == 0) continue;
    if (text.find(' ', mask) == std::string_view::npos) {
      return {KernelGeneration::v6_1, true, "kvm_apicv_inhibit_changed prints no names of the inhibits"};
    }
    return {KernelGeneration::v6_12, true,
            "kvm_apicv_inhibit_changed prints the names of the inhibits, kvm_entry no intr_info"};
  }
  return {KernelGeneration::v6_12, false, "nothing in the text tells 6.1 from 6.12; 6.12 is assumed"};
}

}  // namespace svmsim::workloads
