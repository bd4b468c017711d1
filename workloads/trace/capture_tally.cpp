#include "workloads/trace/capture_tally.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "workloads/trace/ftrace_writer.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::size_t max_notes = 100;
constexpr std::size_t max_unknown_texts = 1000;
constexpr std::size_t max_problems = 100;
constexpr std::uint64_t max_unknown_lines = 20;
constexpr std::size_t max_names = 65'536;

}  // namespace

CaptureTally::CaptureTally(const ImportOptions& options, std::string_view title, std::uint64_t first_line,
                           const TraceNames& names)
    : options_(options),
      names_(names),
      title_(title),
      first_line_(first_line),
      windowed_(options.window_from && options.window_to),
      causes_(threads_),
      sched_(threads_) {}

CaptureTally::Vcpu& CaptureTally::vcpu(std::size_t stream) {
  if (stream >= vcpus_.size()) vcpus_.resize(stream + 1);
  return vcpus_[stream];
}

std::uint64_t CaptureTally::other_index(std::string_view name) {
  if (last_other_ < other_names_.size() && other_names_[last_other_] == name) return last_other_;
  const auto found = other_index_.find(name);
  if (found != other_index_.end()) return last_other_ = found->second;
  if (other_names_.size() >= max_names) return last_other_ = max_names - 1;  // garbage
  last_other_ = other_names_.size();
  other_names_.emplace_back(name);
  other_index_.emplace(name, last_other_);
  return last_other_;
}

CaptureTally::ExitCount& CaptureTally::exit_count(Counts& counts, std::uint64_t code) {
  for (ExitCount& one : counts.exits) {
    if (one.code == code) return one;
  }
  counts.exits.emplace_back().code = code;
  return counts.exits.back();
}

void CaptureTally::add(Counts& counts, const Held& held) {
  switch (held.what) {
    case What::event:
      ++counts.events[held.a];
      break;
    case What::other:
      if (held.b >= counts.others.size()) counts.others.resize(held.b + 1);
      ++counts.others[held.b];
      break;
    case What::exit:
      ++exit_count(counts, held.b).count;
      break;
    case What::span: {
      Spans& spans = exit_count(counts, held.b).spans;
      ++spans.count;
      spans.total += held.c;
      spans.least = std::min(spans.least, held.c);
      spans.most = std::max(spans.most, held.c);
      break;
    }
    case What::cause:
      ++counts.causes[held.a];
      if (held.b == 1) ++counts.open_loop;
      if (held.b == 2) ++counts.closed_loop;
      break;
    case What::wakeup:
      ++counts.wakeups[held.a];
      break;
    case What::poll:
      ++counts.polls[held.a];
      (held.a < 2 ? counts.poll_ns : counts.wait_ns) += held.b;
      break;
    case What::unpaired:
      if (held.a == 0) ++counts.unpaired.before_first_entry;
      if (held.a == 1) ++counts.unpaired.overwritten;
      if (held.a == 2) ++counts.unpaired.entry_alone;
      break;
  }
}

void CaptureTally::put(Vcpu& vcpu, const Held& held) {
  if (!windowed_) {
    add(vcpu.counts, held);
  } else if (vcpu.state == WindowState::inside) {
    vcpu.held.push_back(held);
  }
}

bool CaptureTally::outside_cut(const ReadEvent& read) const {
  const auto before = [&](const CutPoint& point) {
    if (point.by_line) return read.line < point.line;
    if (read.time_base == TimeBase::none) return false;
    return read.event.time < (read.time_base == TimeBase::counter ? point.counter : point.time_ns);
  };
  return (options_.from && before(*options_.from)) ||
         (options_.to && !before(*options_.to) && (options_.to->by_line || read.time_base != TimeBase::none));
}

bool CaptureTally::matches(const EventPattern& pattern, const ReadEvent& read) const {
  if (read.name != pattern.event) return false;
  if (read.text.empty() && read.event.kind != EventKind::other) {
    return event_text(read.event, KernelGeneration::v6_12, &names_.threads).find(pattern.text) !=
           std::string::npos;
  }
  return read.text.find(pattern.text) != std::string_view::npos;
}

void CaptureTally::move_window(Vcpu& vcpu, const ReadEvent& read) {
  const auto commit = [&] {
    for (const Held& held : vcpu.held)
      add(vcpu.counts, held);
    vcpu.held.clear();
  };
  switch (vcpu.state) {
    case WindowState::before:
      if (matches(*options_.window_from, read)) vcpu.state = WindowState::waits_for_entry;
      break;
    case WindowState::waits_for_entry:
      if (matches(*options_.window_to, read)) {
        vcpu.state = WindowState::behind;
      } else if (read.event.kind == EventKind::kvm_entry) {
        vcpu.state = WindowState::inside;
      }
      break;
    case WindowState::inside:
      if (matches(*options_.window_to, read)) {
        vcpu.held.clear();
        vcpu.state = WindowState::behind;
      } else if (read.event.kind == EventKind::kvm_exit) {
        commit();
      }
      break;
    case WindowState::behind:
      break;
  }
}

void CaptureTally::pair(Vcpu& vcpu, const ReadEvent& read) {
  const TraceEvent& event = read.event;
  if (event.kind == EventKind::kvm_exit) {
    if (vcpu.entries == 0) {
      put(vcpu, {What::unpaired, 0, 0, 0});
      return;
    }
    if (vcpu.exit_open) put(vcpu, {What::unpaired, 1, 0, 0});
    vcpu.exit_open = true;
    vcpu.exit_code = event.field[0];
    vcpu.exit_time = event.time;
  } else if (event.kind == EventKind::kvm_entry) {
    if (vcpu.exit_open) {
      // An end before its beginning is dropped, as perf does.
      if (event.time >= vcpu.exit_time)
        put(vcpu, {What::span, 0, vcpu.exit_code, event.time - vcpu.exit_time});
    } else if (vcpu.entries != 0) {
      put(vcpu, {What::unpaired, 2, 0, 0});
    }
    vcpu.exit_open = false;
    ++vcpu.entries;
  }
}

void CaptureTally::take_findings() {
  for (const CauseTracker::Finding& finding : causes_.findings()) {
    const Cause& cause = finding.cause;
    const auto kind = static_cast<std::uint8_t>(cause.kind);
    const bool device = cause.kind == InterruptCause::device_line || cause.kind == InterruptCause::device_msi;
    Held held{finding.wakeup ? What::wakeup : What::cause, kind, 0, 0};
    if (device) held.b = cause.closed_loop ? 2 : 1;
    put(vcpu(finding.stream), held);
  }
  causes_.findings().clear();
}

void CaptureTally::event(const ReadEvent& read) {
  if (read.time_base != TimeBase::none &&
      (time_base_ == TimeBase::none || read.time_base == TimeBase::nanoseconds)) {
    time_base_ = read.time_base;
  }
  const TraceEvent& event = read.event;
  const std::size_t stream = threads_.assign(event, read.tgid);
  if (event.kind == EventKind::kvm_exit && codes_.size() < max_names &&
      std::find(codes_.begin(), codes_.end(), event.field[0]) == codes_.end()) {
    codes_.push_back(event.field[0]);
  }
  causes_.event(read, stream, 0);
  probe_.event(read, stream);
  // Of the whole recording, for a wait may begin before a window and end in it.
  sched_.event(read);
  if ((options_.from || options_.to) && outside_cut(read)) {
    causes_.findings().clear();
    ++dropped_["events outside --from and --to"];
    return;
  }
  ++events_;
  take_findings();
  const bool is_other = event.kind == EventKind::other;
  const Held held{is_other ? What::other : What::event, static_cast<std::uint8_t>(event.kind),
                  is_other ? other_index(read.name) : 0, 0};
  if (stream == VcpuThreads::none) {
    if (!windowed_) add(host_, held);
    return;
  }
  Vcpu& owner = vcpu(stream);
  if (windowed_) {
    move_window(owner, read);
    if (owner.state == WindowState::before || owner.state == WindowState::behind) {
      if (event.kind == EventKind::kvm_entry) owner.entries = 1;
      return;
    }
  }
  put(owner, held);
  switch (event.kind) {
    case EventKind::kvm_exit:
      put(owner, {What::exit, 0, event.field[0], 0});
      pair(owner, read);
      break;
    case EventKind::kvm_entry:
      pair(owner, read);
      break;
    case EventKind::kvm_vcpu_wakeup: {
      const bool waited = event.field[1] != 0;
      const bool valid = !event.has_field(2) || event.field[2] != 0;
      put(owner,
          {What::poll, static_cast<std::uint8_t>((waited ? 2 : 0) + (valid ? 0 : 1)), event.field[0], 0});
      break;
    }
    default:
      break;
  }
}

void CaptureTally::table(const StatTable& table) {
  constexpr std::size_t max_tables = 1000;
  if (tables_.size() < max_tables) {
    tables_.push_back(table);
  } else {
    ++dropped_["tables beyond the first 1000 of a capture"];
  }
}

void CaptureTally::note(const std::string& source, const ReadNote& note) {
  const auto keep = [&](std::string text) {
    if (notes_.size() < max_notes)
      notes_.push_back(Problem{source, note.line, "", std::move(text), ""}.text());
  };
  const auto count_unknown = [&](std::string text) {
    const auto found = unknown_.find(text);
    if (found != unknown_.end()) {
      found->second += note.count;
    } else if (unknown_.size() < max_unknown_texts) {
      unknown_.emplace(std::move(text), note.count);
    }
  };
  switch (note.kind) {
    case NoteKind::unreadable:
      if (problem_count_++ < max_problems) {
        problems_.push_back(Problem{source, note.line, "", std::string{note.text}, ""});
      }
      break;
    case NoteKind::unrecognised:
      ++dropped_["lines that are no event and no row of a table"];
      if (unrecognised_++ < max_unknown_lines) {
        count_unknown("line: " + printable(note.text, 60));
        keep("left out, since it is no event and no row of a table: \"" + printable(note.text, 60) + "\"");
      }
      break;
    case NoteKind::joined:
      keep(std::string{note.text});
      break;
    case NoteKind::lost:
      lost_ += note.count;
      keep(fmt::format("{} events lost by the recorder", note.count));
      break;
    case NoteKind::unknown:
      count_unknown(std::string{note.text});
      keep("unknown " + std::string{note.text});
      break;
    case NoteKind::remark:
      keep(std::string{note.text});
      break;
  }
}

}  // namespace svmsim::workloads
