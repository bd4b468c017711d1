#include "model/host_scheduler.hpp"

#include <algorithm>

#include "model/physical_cpu.hpp"
#include "model/units.hpp"

namespace svmsim::model {

using workloads::EventKind;

namespace {

// get_sd_balance_interval of a busy pCPU: the domain's weight in ms, times busy_factor.
std::uint64_t busy_balance_interval(const CpuTopology& topology, std::uint64_t tsc_hz) {
  constexpr std::uint64_t busy_factor = 16;
  constexpr std::uint64_t ns_per_ms = 1000000;
  return ns_to_cycles(topology.llc * busy_factor * ns_per_ms, tsc_hz);
}

}  // namespace

HostScheduler::HostScheduler(const sc_core::sc_module_name& name, const Settings& settings)
    : sc_core::sc_module(name),
      settings_(settings),
      cpus_(settings.topology.cpus),
      idle_(settings.topology.cpus, true),
      idle_cores_(settings.topology.cpus),
      overloaded_(settings.topology.cpus),
      nohz_full_(settings.topology.cpus),
      balance_interval_(busy_balance_interval(settings.topology, settings.tsc_hz)) {
  entry.bind(*this);
  for (Cpu& cpu : cpus_)
    cpu.queue = std::make_unique<RunQueue>(settings_.algorithm, settings_.parameters);
  for (unsigned cpu = 0; cpu < settings_.topology.cpus; cpu += settings_.topology.threads)
    idle_cores_.add(cpu);
  for (const unsigned cpu : settings_.nohz_full)
    nohz_full_.add(cpu);
}

std::uint64_t HostScheduler::to_ns(std::uint64_t cycles) const {
  return cycles_to_ns(cycles, settings_.tsc_hz);
}

void HostScheduler::set_idle(unsigned cpu, bool idle) {
  if (idle_.has(cpu) == idle) return;
  idle ? idle_.add(cpu) : idle_.remove(cpu);
  const unsigned threads = settings_.topology.threads;
  if (threads == 1) return;
  const unsigned core = cpu / threads * threads;
  bool all = true;
  for (unsigned i = core; i < core + threads && i < settings_.topology.cpus; ++i)
    all = all && idle_.has(i);
  all ? idle_cores_.add(core) : idle_cores_.remove(core);
}

void HostScheduler::note(unsigned cpu) {
  const RunQueue& queue = *cpus_[cpu].queue;
  queue.nr_running() >= 2 && queue.nr_movable() != 0 ? overloaded_.add(cpu) : overloaded_.remove(cpu);
}

unsigned HostScheduler::place(HostThread& thread, unsigned waker) const {
  if (!thread.movable) return thread.cpu_index;
  WakeRequest request;
  request.previous = thread.cpu_index;
  request.waker = waker;
  request.recent = thread.recent_cpu;
  request.previous_load = cpus_[thread.cpu_index].queue->nr_running() * std::uint64_t{nice_0_weight};
  request.waker_load =
      waker == CpuSet::none ? 0 : cpus_[waker].queue->nr_running() * std::uint64_t{nice_0_weight};
  request.weight = thread.weight;
  request.allowed = thread.allowed;
  return select_cpu(request, settings_.topology, idle_, idle_cores_);
}

void HostScheduler::move(HostThread& thread, unsigned to) {
  if (to == thread.cpu_index) return;
  thread.recent_cpu = thread.cpu_index;
  thread.cpu_index = to;
  ++migrations_;
}

bool HostScheduler::activate(HostThread& thread, EnqueueKind kind, unsigned by, std::uint64_t now) {
  Cpu& cpu = cpus_[thread.cpu_index];
  const bool before = cpu.queue->need_resched();
  cpu.queue->enqueue(thread, kind, to_ns(now));
  set_idle(thread.cpu_index, false);
  note(thread.cpu_index);
  // Its own pCPU, or one that has not switched away from it yet and looks at its queue next.
  if (thread.cpu_index == by || thread.on_cpu) return false;
  // A pCPU in nohz_full mode has no tick until a second thread comes, and is told so.
  const bool needs_tick = cpu.queue->nr_running() == 2 && nohz_full_.has(thread.cpu_index);
  return (cpu.queue->need_resched() && !before) || needs_tick;
}

void HostScheduler::trace_wakeup(const HostThread& thread, PhysicalCpu& waker, std::uint64_t now) const {
  waker.events().push({now,
                       EventKind::sched_wakeup,
                       0,
                       static_cast<std::int32_t>(waker.index()),
                       waker.current_tid(),
                       -1,
                       {static_cast<std::uint64_t>(thread.tid), thread.trace_priority(), thread.cpu_index}});
}

// try_to_wake_up.
void HostScheduler::wake(HostThread& thread, PhysicalCpu* waker, std::uint64_t now) {
  thread.state = HostThread::State::runnable;
  thread.was_woken = true;
  thread.wakeup_traced = false;
  thread.woken_cycles = now;
  if (waker == nullptr) {  // before time starts: every pCPU looks at its queue by itself
    static_cast<void>(activate(thread, EnqueueKind::initial, thread.cpu_index, now));
    return;
  }
  const bool traced = waker->events().active();
  if (traced) {
    waker->events().push(
        {now,
         EventKind::sched_waking,
         0,
         static_cast<std::int32_t>(waker->index()),
         waker->current_tid(),
         -1,
         {static_cast<std::uint64_t>(thread.tid), thread.trace_priority(), thread.cpu_index}});
  }
  // One whose dequeue is delayed is still queued, one that is on its way out belongs to its pCPU.
  if (!thread.on_rq && !thread.on_cpu) {
    const unsigned to = place(thread, waker->index());
    if (to != thread.cpu_index) {
      thread.vruntime += cpus_[to].queue->base_vruntime() - cpus_[thread.cpu_index].queue->base_vruntime();
      move(thread, to);
    }
  }
  // ttwu_queue_wakelist: an idle pCPU, or one of another cache domain, does the rest by itself.
  const bool local =
      thread.cpu_index == waker->index() ||
      (!idle_.has(thread.cpu_index) && settings_.topology.share_cache(thread.cpu_index, waker->index()));
  // Decided now, while the waker is synchronised: the charge lets other CPUs act.
  const unsigned target = thread.cpu_index;
  const bool must_kick = activate(thread, EnqueueKind::wakeup, waker->index(), now);
  if (traced && local) {
    trace_wakeup(thread, *waker, now);
    thread.wakeup_traced = true;
  }
  if (const Cpu& cpu = cpus_[target]; cpu.watch_event != nullptr && cpu.watcher != waker) {
    cpu.watch_event->notify(delay_until(cpu.watcher->moment_of(now + 1)));
    waker->notified_others();
  }
  waker->charge(settings_.wakeup_cycles);
  if (must_kick) {
    fabric->send(target, ArrivalKind::reschedule, waker->local());
    waker->notified_others();
  }
}

void HostScheduler::sleep(HostThread& thread, std::uint64_t until) {
  cpus_[thread.cpu_index].queue->sleep(thread, to_ns(until));
  note(thread.cpu_index);
}

void HostScheduler::end(HostThread& thread, std::uint64_t now) {
  // One that ended in its sleep is off the queue, or its dequeue is delayed.
  if (!thread.on_rq || thread.delayed) return;
  cpus_[thread.cpu_index].queue->remove(thread, to_ns(now));
  note(thread.cpu_index);
}

bool HostScheduler::pull(unsigned to, unsigned shortest, std::uint64_t now) {
  constexpr int attempts = 4;  // queues to look at: what waits there may not be allowed here
  const CpuTopology& topology = settings_.topology;
  unsigned begin = topology.llc_begin(to);
  unsigned end = topology.llc_end(to);
  unsigned start = to;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    unsigned from = overloaded_.first_around(start, begin, end);
    if (from == CpuSet::none || (from == to && attempt != 0)) {
      if (end - begin == topology.cpus) return false;
      begin = 0;
      end = topology.cpus;
      from = overloaded_.first_around(topology.llc_end(to) % topology.cpus, begin, end);
      if (from == CpuSet::none) return false;
    }
    start = from + 1 < end ? from + 1 : begin;
    if (from == to) continue;
    RunQueue& queue = *cpus_[from].queue;
    if (queue.nr_running() < shortest) continue;
    auto* thread = static_cast<HostThread*>(queue.pullable());
    if (thread == nullptr || !thread->movable || thread->on_cpu) continue;
    if (thread->allowed != nullptr && !thread->allowed->has(to)) continue;
    queue.remove(*thread, to_ns(now));
    note(from);
    move(*thread, to);
    static_cast<void>(activate(*thread, EnqueueKind::migrated, to, now));
    return true;
  }
  return false;
}

HostThread* HostScheduler::pick(unsigned cpu, std::uint64_t now) {
  RunQueue& queue = *cpus_[cpu].queue;
  SchedEntity* next = queue.pick(to_ns(now));
  note(cpu);
  if (next == nullptr && settings_.balance && pull(cpu, 2, now)) {
    next = queue.pick(to_ns(now));
    note(cpu);
  }
  set_idle(cpu, next == nullptr);
  return static_cast<HostThread*>(next);
}

void HostScheduler::tick(unsigned cpu, std::uint64_t now) {
  RunQueue& queue = *cpus_[cpu].queue;
  queue.tick(to_ns(now));
  if (!settings_.balance || now < cpus_[cpu].next_balance) return;
  cpus_[cpu].next_balance = now + balance_interval_;
  if (queue.nr_running() != 0) static_cast<void>(pull(cpu, queue.nr_running() + 2, now));
}

int HostScheduler::yield_to(PhysicalCpu& cpu, HostThread& target) {
  RunQueue& own = *cpus_[cpu.index()].queue;
  RunQueue& other = *cpus_[target.cpu_index].queue;
  if (own.nr_running() == 1 && other.nr_running() == 1) return -1;
  if (target.on_cpu || target.state != HostThread::State::runnable) return 0;
  const SchedEntity* current = own.current();
  if (current == nullptr || current->policy == SchedPolicy::fifo) return 0;
  if (!other.boost(target)) return 0;
  own.yield(to_ns(cpu.local()));
  own.set_need_resched();
  if (&own != &other && !other.need_resched()) {
    other.set_need_resched();
    fabric->send(target.cpu_index, ArrivalKind::reschedule, cpu.local());
    cpu.notified_others();
  }
  return 1;
}

void HostScheduler::watch(PhysicalCpu& cpu, sc_core::sc_event* event) {
  cpus_[cpu.index()].watcher = &cpu;
  cpus_[cpu.index()].watch_event = event;
}

}  // namespace svmsim::model
