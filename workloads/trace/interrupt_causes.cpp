#include "workloads/trace/interrupt_causes.hpp"

namespace svmsim::workloads {

ReadEvent read_event_of(const Capture& capture, std::size_t index) {
  ReadEvent read;
  read.event = capture.events[index];
  read.line = capture.lines[index];
  read.name = capture.name_of(read.event);
  read.text = capture.other_text_of(read.event);
  read.comm = capture.threads.comm(read.event.tid);
  const auto process = capture.processes.find(read.event.tid);
  if (process != capture.processes.end()) read.tgid = process->second;
  read.time_base = capture.time_base;
  return read;
}

InterruptCauses::InterruptCauses(const Capture& capture) {
  VcpuThreads threads;
  CauseTracker tracker(threads);
  const auto collect = [&] {
    for (const CauseTracker::Finding& finding : tracker.findings())
      causes_.emplace(static_cast<std::uint32_t>(finding.token), finding.cause);
    tracker.findings().clear();
  };
  for (std::size_t i = 0; i < capture.events.size(); ++i) {
    const ReadEvent read = read_event_of(capture, i);
    tracker.event(read, threads.assign(read.event, read.tgid), i);
    collect();
  }
  tracker.finish();
  collect();
}

}  // namespace svmsim::workloads
