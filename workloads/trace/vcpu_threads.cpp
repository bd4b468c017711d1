#include "workloads/trace/vcpu_threads.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace svmsim::workloads {

namespace {

bool is_entry_or_exit(const TraceEvent& event) {
  return event.kind == EventKind::kvm_entry || event.kind == EventKind::kvm_exit;
}

/// Only a vCPU's own thread emits these.
bool proves_vcpu(const TraceEvent& event) {
  return is_entry_or_exit(event) || event.kind == EventKind::kvm_inj_virq ||
         event.kind == EventKind::kvm_inj_exception || event.kind == EventKind::kvm_vcpu_wakeup;
}

}  // namespace

std::size_t VcpuThreads::add(std::int32_t tid, std::int32_t tgid, int vcpu) {
  if (streams_.size() >= max_streams) {
    overflow_ = true;
    return none;
  }
  Stream stream;
  stream.tid = tid;
  stream.tgid = tgid;
  stream.vcpu = vcpu;
  streams_.push_back(stream);
  in_host_.push_back(false);
  group();
  return streams_.size() - 1;
}

std::size_t VcpuThreads::assign(const TraceEvent& event, std::int32_t tgid) {
  return event.tid >= 0 ? by_thread(event, tgid) : by_field(event);
}

std::size_t VcpuThreads::stream_of_thread(std::int32_t tid) const {
  if (tid <= 0) return none;
  const auto found = slots_.find(tid);
  return found == slots_.end() ? none : found->second.current;
}

std::size_t VcpuThreads::by_thread(const TraceEvent& event, std::int32_t tgid) {
  Slot* slot = last_slot_;
  if (event.tid != last_tid_ || slot == nullptr) {
    const auto found = slots_.find(event.tid);
    if (found != slots_.end()) {
      slot = &found->second;
    } else if (proves_vcpu(event) && slots_.size() < 16 * max_streams) {
      slot = &slots_[event.tid];
    } else {
      return none;
    }
    last_tid_ = event.tid;
    last_slot_ = slot;
  }
  if (slot->current != none && !is_entry_or_exit(event)) return slot->current;
  if (slot->current == none) {
    slot->current = add(event.tid, tgid, event.vcpu);
    return slot->current;
  }
  Stream& stream = streams_[slot->current];
  if (event.vcpu < 0 || event.vcpu == stream.vcpu) return slot->current;
  if (stream.vcpu < 0) {
    stream.vcpu = event.vcpu;
    group();
    return slot->current;
  }
  // Another vCPU than before: the thread has run it already, or does now.
  roaming_ = roaming_ || !slot->roams;
  slot->roams = true;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].tid == event.tid && streams_[i].vcpu == event.vcpu) return slot->current = i;
  }
  const std::size_t fresh = add(event.tid, tgid, event.vcpu);
  if (fresh != none) slot->current = fresh;
  return fresh;
}

std::size_t VcpuThreads::by_field(const TraceEvent& event) {
  if (!is_entry_or_exit(event)) {
    if (current_ == none) current_ = add(-1, -1, -1);  // before anything: of whoever enters first
    if (!in_host_[current_]) {
      const auto other = std::find(in_host_.begin(), in_host_.end(), true);
      if (other != in_host_.end()) current_ = static_cast<std::size_t>(other - in_host_.begin());
    }
    return current_;
  }
  const int vcpu = event.vcpu;
  if (vcpu >= 0 || current_ == none) {
    std::size_t found = none;
    for (std::size_t i = 0; i < streams_.size() && found == none; ++i) {
      if (streams_[i].tid < 0 && streams_[i].vcpu == vcpu) found = i;
    }
    if (found == none && current_ != none && streams_[current_].vcpu < 0) {
      found = current_;
      streams_[found].vcpu = vcpu;
    }
    const std::size_t chosen = found != none ? found : add(-1, -1, vcpu);
    if (chosen == none) return none;
    current_ = chosen;
  }
  in_host_[current_] = event.kind == EventKind::kvm_exit;
  return current_;
}

// A VM's number is that of its first stream in order of appearance.
void VcpuThreads::group() {
  const auto number = [this](auto key_of) {
    std::map<std::int64_t, int> vms;
    for (Stream& stream : streams_) {
      const auto [found, fresh] = vms.try_emplace(key_of(stream), static_cast<int>(vms.size()));
      stream.vm = found->second;
    }
    vm_count_ = static_cast<int>(vms.size());
  };
  const bool processes =
      std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.tgid >= 0; });
  if (processes) {
    evidence_ = "by process";
    number([](const Stream& stream) { return std::int64_t{stream.tgid}; });
    return;
  }
  std::set<std::pair<int, std::int32_t>> seen;
  std::map<int, int> threads_of_vcpu;
  for (const Stream& stream : streams_) {
    if (stream.vcpu >= 0 && seen.insert({stream.vcpu, stream.tid}).second) ++threads_of_vcpu[stream.vcpu];
  }
  const bool repeated = std::any_of(threads_of_vcpu.begin(), threads_of_vcpu.end(),
                                    [](const auto& one) { return one.second > 1; });
  if (!repeated || roaming_) {
    evidence_ = repeated ? "threads run several vCPUs in turn: taken for one VM"
                         : "no vCPU number comes twice: one VM";
    number([](const Stream&) { return std::int64_t{0}; });
    return;
  }
  evidence_ = "the same vCPU number on several threads: VMs in the order of their thread ids";
  std::vector<std::size_t> order(streams_.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(),
            [this](std::size_t a, std::size_t b) { return streams_[a].tid < streams_[b].tid; });
  std::vector<std::int64_t> group_of(streams_.size(), 0);
  std::set<int> in_group;
  std::int64_t current = 0;
  for (const std::size_t index : order) {
    const int vcpu = streams_[index].vcpu;
    if (vcpu >= 0 && !in_group.insert(vcpu).second) {
      ++current;
      in_group = {vcpu};
    }
    group_of[index] = current;
  }
  const Stream* const first = streams_.data();
  number([&](const Stream& stream) { return group_of[static_cast<std::size_t>(&stream - first)]; });
}

}  // namespace svmsim::workloads
