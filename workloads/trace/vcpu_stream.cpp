#include "workloads/trace/vcpu_stream.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "workloads/trace/ftrace_writer.hpp"
#include "workloads/trace/interrupt_causes.hpp"
#include "workloads/trace/vcpu_threads.hpp"

namespace svmsim::workloads {

namespace {

bool has_entry_or_exit(const Capture& capture, const VcpuStream& stream) {
  return std::any_of(stream.events.begin(), stream.events.end(), [&](std::uint32_t index) {
    const EventKind kind = capture.events[index].kind;
    return kind == EventKind::kvm_entry || kind == EventKind::kvm_exit;
  });
}

}  // namespace

std::vector<VcpuStream> split_streams(const Capture& capture) {
  VcpuThreads threads;
  std::vector<std::uint32_t> owner;
  owner.reserve(capture.events.size());
  constexpr std::uint32_t nobody = UINT32_MAX;
  for (const TraceEvent& event : capture.events) {
    const auto process = capture.processes.find(event.tid);
    const std::size_t stream =
        threads.assign(event, process == capture.processes.end() ? -1 : process->second);
    owner.push_back(stream == VcpuThreads::none ? nobody : static_cast<std::uint32_t>(stream));
  }
  // What a thread did before it first entered its guest is its own too. Streams of one vCPU that several
  // threads ran in turn are one.
  std::map<std::int32_t, std::uint32_t> first_of_thread;
  std::map<std::pair<int, int>, std::size_t> index;
  std::vector<std::size_t> target;
  std::vector<VcpuStream> streams;
  for (const VcpuThreads::Stream& one : threads.streams()) {
    if (one.tid >= 0) first_of_thread.emplace(one.tid, static_cast<std::uint32_t>(target.size()));
    const auto [found, fresh] = index.try_emplace({one.vm, one.vcpu}, streams.size());
    target.push_back(found->second);
    if (!fresh) continue;
    VcpuStream& stream = streams.emplace_back();
    stream.vm = one.vm;
    stream.vcpu = one.vcpu;
    stream.tid = one.tid;
  }
  for (std::size_t i = 0; i < owner.size(); ++i) {
    std::uint32_t stream = owner[i];
    if (stream == nobody) {
      const auto found = first_of_thread.find(capture.events[i].tid);
      if (found == first_of_thread.end()) continue;
      stream = found->second;
    }
    streams[target[stream]].events.push_back(static_cast<std::uint32_t>(i));
  }
  // Without a kvm_entry or kvm_exit that says whose it is, a stream is no vCPU.
  streams.erase(std::remove_if(streams.begin(), streams.end(),
                               [&](const VcpuStream& stream) {
                                 return stream.vcpu < 0 && !has_entry_or_exit(capture, stream);
                               }),
                streams.end());
  for (VcpuStream& stream : streams)
    stream.vcpu = std::max(stream.vcpu, 0);
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

GenerationGuess infer_generation(const Capture& capture) {
  VcpuThreads threads;
  GenerationProbe probe;
  for (std::size_t i = 0; i < capture.events.size(); ++i) {
    const ReadEvent read = read_event_of(capture, i);
    probe.event(read, threads.assign(read.event, read.tgid));
  }
  return probe.guess();
}

}  // namespace svmsim::workloads
