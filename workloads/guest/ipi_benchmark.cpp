#include "workloads/guest/ipi_benchmark.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"
#include "workloads/guest/kernel_code.hpp"
#include "workloads/guest/pv_memory.hpp"

namespace svmsim::workloads {

namespace {

using svm::ActionKind;
using svm::GuestAction;
namespace flags = svm::action_flags;

// Where the code lies: the kernel's text, and a module's.
constexpr std::uint64_t kernel_text = 0xffffffff81100000;
constexpr std::uint64_t idle_text = kernel_text + 0x1000;
constexpr std::uint64_t handler_text = kernel_text + 0x2000;
constexpr std::uint64_t module_text = 0xffffffffc0400000;
constexpr std::uint64_t pv_eoi_address = 0x1f000;  // of CPU 0; 64 bytes for each

constexpr std::uint64_t steal_address = 0x30000;  // likewise

constexpr std::uint64_t ns_per_second = 1'000'000'000;

enum class Meaning : std::uint8_t {
  none,
  booted,       // shared: this CPU is set up
  all_booted,   // spin: wait for that of everybody
  start,        // RDTSC: an iteration begins
  yield,        // shared: kvm_smp_send_call_func_ipi looks for a preempted target
  enqueue,      // shared: calls are on the queues of their targets
  wait,         // spin: csd_lock_wait
  stop,         // RDTSC: the iteration ends
  direct_call,  // shared: the function of a call to oneself
  done,         // shared: the sender has finished
  until_done,   // spin: a target or a bystander, until then
  pv_eoi,       // the BTR of kvm_guest_apic_eoi_write
  callback,     // shared: flush_smp_call_function_queue
};

using Code = KernelCode<Meaning>;

/// One CPU of the benchmark.
class IpiBenchmarkSource final : public WorkloadSource {
 public:
  IpiBenchmarkSource(const IpiBenchmarkSpec& spec, const GuestPlatform& platform,
                     std::shared_ptr<IpiBenchmarkMemory> memory, unsigned cpu)
      : spec_(spec), platform_(platform), memory_(std::move(memory)), cpu_(cpu), driver_(platform.apic) {
    const unsigned targets = spec_.test == IpiTest::normal || spec_.test == IpiTest::send ? 1 : spec_.fan_out;
    for (unsigned target = 1; target <= targets; ++target)
      mask_.push_back(target);
    is_target_ = cpu != 0 && cpu <= targets;
    boot();
    make_handler();
    if (cpu_ == 0) make_iteration();
  }

  [[nodiscard]] InitialState initial_state() const override {
    InitialState state;
    state.rip = code_.items.front().action.rip;
    state.interrupts_enabled = true;
    state.apic_svr = 0x1ff;
    return state;
  }

  [[nodiscard]] const GuestAction* current() override {
    if (in_handler_) return &handler_.items[handler_next_].action;
    if (next_ == code_.items.size() && !refill()) return nullptr;
    return &code_.items[next_].action;
  }

  void retire(std::uint64_t tsc, std::uint64_t result) override {
    const Code::Item& item = item_now();
    switch (item.meaning) {
      case Meaning::all_booted:
      case Meaning::wait:
      case Meaning::until_done:
        return;  // a turn, or an exit in it: the look decides
      case Meaning::start:
        memory_->started_at = result;
        break;
      case Meaning::stop:
        end_iteration(result);
        break;
      case Meaning::pv_eoi:
        if (std::exchange(pv_->eoi, false)) ++handler_next_;  // no EOI needed
        break;
      default:
        break;
    }
    advance();
    (void)tsc;
  }

  const std::vector<unsigned>& retire_shared(std::uint64_t tsc) override {
    static const std::vector<unsigned> nobody;
    static const std::vector<unsigned> sender{0};
    const std::vector<unsigned>* reached = &nobody;
    IpiBenchmarkMemory& memory = *memory_;
    const std::uint64_t visible = tsc + platform_.costs.line;
    switch (item_now().meaning) {
      case Meaning::booted:
        if (--memory.booting == 0) {
          memory.booted_at = visible;
          reached = &sender;
        }
        break;
      case Meaning::enqueue:
        for (const unsigned target : mask_)
          memory.queued_at[target] = visible;
        memory.outstanding = static_cast<unsigned>(mask_.size());
        if (no_ipi()) reached = &mask_;
        break;
      case Meaning::yield:
        yield_to_preempted();
        break;
      case Meaning::direct_call:
        record(tsc);
        break;
      case Meaning::callback:
        // What an IPI announces is there when it arrives.
        if (memory.queued_at[cpu_] != IpiBenchmarkMemory::nothing) {
          memory.queued_at[cpu_] = IpiBenchmarkMemory::nothing;
          record(tsc);
          if (--memory.outstanding == 0) {
            memory.completed_at = visible;
            reached = &sender;
          }
        }
        break;
      case Meaning::done:
        memory.done_at = visible;
        reached = &memory.others;
        break;
      case Meaning::until_done:
        if (memory.done_at > tsc) {  // called without an IPI: the idle loop runs the queue
          code_.items.clear();
          code_.compute(platform_.costs.handler, idle_text + 0x80, flags::shared, Meaning::callback);
          next_ = 0;
          return *reached;
        }
        break;
      default:
        break;
    }
    advance();
    return *reached;
  }

  [[nodiscard]] std::uint64_t spin_ready() const override {
    const IpiBenchmarkMemory& memory = *memory_;
    switch (item_now().meaning) {
      case Meaning::all_booted:
        return memory.booting == 0 ? memory.booted_at : never_ready;
      case Meaning::wait:
        return memory.outstanding == 0 ? memory.completed_at : never_ready;
      case Meaning::until_done:
        return std::min(memory.done_at, no_ipi() ? memory.queued_at[cpu_] : never_ready);
      default:
        return 0;
    }
  }

  void interrupt(std::uint8_t vector, std::uint64_t) override {
    if (vector != guest_vector::call_function && vector != guest_vector::call_function_single &&
        vector != guest_vector::reschedule) {
      failure_ = fmt::format("vector 0x{:x} was delivered, and the benchmark has no handler for it", vector);
    }
    in_handler_ = true;
    handler_next_ = vector == guest_vector::reschedule ? handler_of_reschedule_ : 0;
  }

  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t) const override { return handler_text; }
  void attach(PvMemory& memory) override {
    pv_ = &memory;
    memory_->pv[cpu_] = &memory;
  }
  [[nodiscard]] bool serves() const override { return cpu_ != 0; }
  [[nodiscard]] std::string failure() const override { return failure_; }
  [[nodiscard]] Metrics metrics() const override;

 private:
  [[nodiscard]] const Code::Item& item_now() const {
    return in_handler_ ? handler_.items[handler_next_] : code_.items[next_];
  }
  void advance() {
    if (!in_handler_) {
      ++next_;
    } else if (++handler_next_ == handler_.items.size() || handler_next_ == handler_of_reschedule_) {
      in_handler_ = false;
    }
  }

  [[nodiscard]] bool no_ipi() const noexcept {
    return spec_.polling_needs_no_ipi && spec_.target == IpiTarget::poll && spec_.test == IpiTest::normal;
  }

  // What a CPU does before the benchmark: its logical ID, PV EOI.
  void boot() {
    std::vector<GuestAction> actions;
    driver_.init_apic_ldr(cpu_, actions);
    code_.append(actions);
    const auto enable = [&](std::uint32_t msr, std::uint64_t address, std::uint64_t rip) {
      GuestAction write;
      write.kind = ActionKind::wrmsr;
      write.length = 2;
      write.rip = rip;
      write.number = msr;
      write.operand[0] = (address + 64 * cpu_) | kvm_msr::enabled;
      code_.add(write);
    };
    if (platform_.pv_eoi) enable(kvm_msr::pv_eoi_en, pv_eoi_address, kernel_text);
    if (platform_.steal_time) enable(kvm_msr::steal_time, steal_address, kernel_text + 8);
    if (cpu_ == 0) {
      code_.compute(platform_.costs.spin_turn, module_text, flags::spin, Meaning::all_booted);
    } else {
      code_.compute(1, kernel_text + 0x10, flags::shared, Meaning::booted);
    }
  }

  // sysvec_call_function and sysvec_reschedule_ipi: the EOI comes first.
  void make_handler() {
    add_eoi();
    handler_.compute(platform_.costs.handler, handler_text + 0x20, flags::shared, Meaning::callback);
    handler_.instruction(ActionKind::iret, handler_text + 0x30, 2);
    handler_of_reschedule_ = handler_.items.size();
    add_eoi();
    handler_.instruction(ActionKind::iret, handler_text + 0x30, 2);
  }
  void add_eoi() {
    if (platform_.pv_eoi) {
      GuestAction test;
      test.kind = ActionKind::memory_write;
      test.size = 1;
      test.length = 8;
      test.rip = handler_text;
      test.operand[1] = pv_eoi_address + 64 * cpu_;
      handler_.add(test, Meaning::pv_eoi);
    }
    handler_.add(driver_.eoi());
  }

  void make_iteration() {
    if (spec_.gap_cycles != 0) iteration_.compute(spec_.gap_cycles, module_text + 0x10);
    iteration_.instruction(ActionKind::rdtsc, module_text + 0x20, 2, Meaning::start);
    std::vector<GuestAction> actions;
    const GuestCosts& costs = platform_.costs;
    switch (spec_.test) {
      case IpiTest::dry_run:
        break;
      case IpiTest::self:  // generic_exec_single runs the function itself
        iteration_.compute(costs.call, kernel_text + 0x100, flags::shared, Meaning::direct_call);
        break;
      case IpiTest::normal:
        iteration_.compute(costs.call + costs.call_target, kernel_text + 0x100, flags::shared,
                           Meaning::enqueue);
        if (!no_ipi()) driver_.send_call_function_single(mask_.front(), actions);
        iteration_.append(actions);
        iteration_.compute(costs.spin_turn, kernel_text + 0x120, flags::spin | flags::pauses, Meaning::wait);
        break;
      case IpiTest::broadcast: {
        const std::uint64_t targets = mask_.size();
        iteration_.compute(costs.call + targets * costs.call_target, kernel_text + 0x100, flags::shared,
                           Meaning::enqueue);
        // smp_call_function_many_cond takes the way of one target for one target.
        if (targets == 1) {
          driver_.send_call_function_single(mask_.front(), actions);
        } else {
          driver_.send_call_function(cpu_, mask_, actions);
        }
        iteration_.append(actions);
        if (targets > 1 && platform_.pv_sched_yield) {
          iteration_.compute(1, kernel_text + 0x118, flags::shared, Meaning::yield);
          iteration_.instruction(ActionKind::nop, kernel_text + 0x11c, 3);
          yield_place_ = iteration_.items.size() - 1;
        }
        iteration_.compute(costs.spin_turn, kernel_text + 0x120, flags::spin | flags::pauses, Meaning::wait);
        // Each csd was last written by its target.
        if (targets > 1) iteration_.compute((targets - 1) * costs.line, kernel_text + 0x130);
        break;
      }
      case IpiTest::send:
        iteration_.compute(costs.call, kernel_text + 0x100);
        driver_.send_reschedule(mask_.front(), actions);
        iteration_.append(actions);
        break;
    }
    iteration_.instruction(ActionKind::rdtsc, module_text + 0x30, 2, Meaning::stop);
  }

  // The hypercall names the first target that is preempted while it has something to run; without one the
  // place holds a NOP.
  void yield_to_preempted() {
    GuestAction& place = code_.items[yield_place_].action;
    place = iteration_.items[yield_place_].action;
    if (spec_.target != IpiTarget::busy) return;
    for (const unsigned target : mask_) {
      if (!memory_->pv[target]->preempted) continue;
      std::vector<GuestAction> actions;
      driver_.sched_yield(target, actions);
      place = actions.front();
      return;
    }
  }

  /// The next piece of code; false when there is none.
  bool refill() {
    if (cpu_ != 0) return refill_other();
    if (iterations_ < spec_.iterations) {
      if (iterations_ == 0) code_.items = iteration_.items;
      next_ = 0;
      return true;
    }
    if (ended_) return false;
    ended_ = true;
    code_.items.clear();
    code_.compute(1, module_text + 0x40, flags::shared, Meaning::done);
    next_ = 0;
    return true;
  }
  bool refill_other() {
    if (!code_.items.empty() && code_.items.back().meaning == Meaning::until_done) {
      ended_ = true;
      return false;
    }
    if (ended_) return false;
    code_.items.clear();
    next_ = 0;
    if (is_target_ && spec_.target == IpiTarget::halt) {
      // do_idle: the interrupt is taken behind HLT, and the loop looks and halts again.
      code_.instruction(ActionKind::cli, idle_text, 1);
      code_.instruction(ActionKind::sti, idle_text + 0x10, 1);
      code_.instruction(ActionKind::hlt, idle_text + 0x11, 1);
      code_.compute(platform_.costs.spin_turn, idle_text + 0x12);
      return true;
    }
    const bool pauses = is_target_ && spec_.target == IpiTarget::poll;
    const std::uint8_t how = pauses ? flags::spin | flags::pauses : flags::spin;
    code_.compute(platform_.costs.spin_turn, idle_text + 0x40, how, Meaning::until_done);
    return true;
  }

  void record(std::uint64_t tsc) { memory_->latency.add(tsc - memory_->started_at); }
  void end_iteration(std::uint64_t tsc) {
    total_cycles_ += tsc - memory_->started_at;
    ++iterations_;
  }

  IpiBenchmarkSpec spec_;
  GuestPlatform platform_;
  std::shared_ptr<IpiBenchmarkMemory> memory_;
  unsigned cpu_;
  ApicDriver driver_;
  ApicDriver::CpuMask mask_;
  bool is_target_ = false;
  Code code_;
  std::size_t next_ = 0;
  Code iteration_;
  Code handler_;
  std::size_t yield_place_ = 0;
  std::size_t handler_of_reschedule_ = 0;
  std::size_t handler_next_ = 0;
  bool in_handler_ = false;
  bool ended_ = false;
  std::uint64_t iterations_ = 0;
  std::uint64_t total_cycles_ = 0;
  PvMemory* pv_ = nullptr;
  std::string failure_;
};

Metrics IpiBenchmarkSource::metrics() const {
  if (cpu_ != 0) return {};
  const auto ns = [&](double cycles) {
    return cycles * static_cast<double>(ns_per_second) / static_cast<double>(platform_.tsc_hz);
  };
  Metrics result{{"iterations", static_cast<double>(iterations_)}};
  if (iterations_ == 0) return result;
  result.emplace_back("total_ns", ns(static_cast<double>(total_cycles_) / static_cast<double>(iterations_)));
  const CycleHistogram& latency = memory_->latency;
  if (latency.count() == 0) return result;
  result.emplace_back("calls", static_cast<double>(latency.count()));
  result.emplace_back("latency_mean_ns", ns(latency.mean()));
  constexpr std::array<std::pair<const char*, std::uint64_t>, 11> ranks{{{"latency_min_ns", 0},
                                                                         {"latency_p5_ns", 50},
                                                                         {"latency_p10_ns", 100},
                                                                         {"latency_p25_ns", 250},
                                                                         {"latency_p50_ns", 500},
                                                                         {"latency_p75_ns", 750},
                                                                         {"latency_p90_ns", 900},
                                                                         {"latency_p95_ns", 950},
                                                                         {"latency_p99_ns", 990},
                                                                         {"latency_p999_ns", 999},
                                                                         {"latency_max_ns", 1000}}};
  for (const auto& [name, share] : ranks)
    result.emplace_back(name, ns(static_cast<double>(latency.quantile(share))));
  return result;
}

const std::vector<std::string> test_names{"dry_run", "self", "normal", "broadcast", "send"};
const std::vector<std::string> target_names{"busy", "poll", "halt"};

}  // namespace

void CycleHistogram::add(std::uint64_t cycles) {
  unsigned group = 0;
  while (cycles >> group >= std::uint64_t{2} << precision_bits)
    ++group;
  counts_[(std::size_t{group} << precision_bits) + (cycles >> group)] += 1;
  ++count_;
  sum_ += cycles;
  least_ = std::min(least_, cycles);
  greatest_ = std::max(greatest_, cycles);
}

std::uint64_t CycleHistogram::quantile(std::uint64_t share) const {
  constexpr std::uint64_t whole = 1000;
  if (count_ == 0 || share >= whole) return greatest_;
  if (share == 0) return least_;
  const std::uint64_t rank = std::max<std::uint64_t>((count_ * share + whole - 1) / whole, 1);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen < rank) continue;
    // The middle of what counts together, but never outside of what was seen.
    const std::size_t group = i >> precision_bits <= 1 ? 0 : (i >> precision_bits) - 1;
    const std::uint64_t low = (i - (group << precision_bits)) << group;
    return std::clamp(low + ((std::uint64_t{1} << group) >> 1), least_, greatest_);
  }
  return greatest_;
}

ProgramInfo IpiBenchmark::info() {
  ProgramInfo info;
  info.name = "ipi_benchmark";
  info.doc = "One CPU of a Linux guest calls a function on others and waits for them; the APIC driver sends";
  info.source =
      "Yury Norov's ipi_benchmark.c; test = \"send\" is the send-only loop of the no-kvm-pvipi thread";
  info.vcpus = 2;
  info.parallel = true;
  const auto choice = [](const char* name, const std::vector<std::string>& choices, const char* usual,
                         const char* doc) {
    ProgramParameter parameter;
    parameter.name = name;
    parameter.default_value = std::string(usual);
    parameter.choices = choices;
    parameter.doc = doc;
    return parameter;
  };
  const auto number = [](const char* name, std::int64_t usual, std::int64_t minimum, std::int64_t maximum,
                         const char* unit, const char* doc) {
    ProgramParameter parameter;
    parameter.name = name;
    parameter.default_value = usual;
    parameter.minimum = minimum;
    parameter.maximum = maximum;
    parameter.unit = unit;
    parameter.doc = doc;
    return parameter;
  };
  info.parameters.push_back(choice("test", test_names, "normal",
                                   "dry_run, self (a direct call, no IPI), normal (one target), broadcast "
                                   "(fan_out targets), or send (the sending alone)"));
  info.parameters.push_back(choice("target", target_names, "poll",
                                   "what the others do: busy (compute), poll (idle=poll), halt (HLT)"));
  info.parameters.push_back(number("iterations", 100000, 1, 100000000, "", "calls"));
  info.parameters.push_back(
      number("fan_out", 0, 0, 1023, "", "targets of a broadcast, from CPU 1 on; 0 = all other CPUs"));
  info.parameters.push_back(
      number("gap_cycles", 0, 0, INT64_C(1) << 40, "cycles", "computing between two iterations, not timed"));
  ProgramParameter flag;
  flag.name = "polling_needs_no_ipi";
  flag.default_value = false;
  flag.doc = "an idle=poll target of one call is told by its polling flag alone, as in kernels since 5.8";
  info.parameters.push_back(flag);
  return info;
}

IpiBenchmarkSpec IpiBenchmark::parse(const WorkloadSpec& spec, const GuestPlatform& platform) {
  const auto values = resolved_parameters(spec);
  const auto number = [&](const char* name) {
    return static_cast<std::uint64_t>(std::get<std::int64_t>(values.at(name)));
  };
  const auto index = [&](const char* name, const std::vector<std::string>& names) {
    const auto found = std::find(names.begin(), names.end(), std::get<std::string>(values.at(name)));
    return static_cast<std::uint8_t>(found - names.begin());
  };
  IpiBenchmarkSpec result;
  result.test = static_cast<IpiTest>(index("test", test_names));
  result.target = static_cast<IpiTarget>(index("target", target_names));
  result.iterations = number("iterations");
  result.fan_out = static_cast<unsigned>(number("fan_out"));
  result.gap_cycles = number("gap_cycles");
  result.polling_needs_no_ipi = std::get<bool>(values.at("polling_needs_no_ipi"));
  const unsigned most = platform.apic.cpus - 1;
  if (result.fan_out == 0) result.fan_out = most;
  if (result.fan_out > most) {
    throw UserError(Problem{"", 0, "fan_out",
                            fmt::format("is {}, but the VM has {} other vCPUs", result.fan_out, most),
                            std::to_string(most)});
  }
  return result;
}

IpiBenchmark::IpiBenchmark(const IpiBenchmarkSpec& spec, const GuestPlatform& platform)
    : spec_(spec), platform_(platform), memory_(std::make_shared<IpiBenchmarkMemory>(platform.apic.cpus)) {
  memory_->booting = platform.apic.cpus - 1;
}

std::unique_ptr<WorkloadSource> IpiBenchmark::source(unsigned vcpu) {
  return std::make_unique<IpiBenchmarkSource>(spec_, platform_, memory_, vcpu);
}

const std::vector<ProgramInfo>& guest_workloads() {
  static const std::vector<ProgramInfo> workloads{IpiBenchmark::info()};
  return workloads;
}

bool is_guest_workload(const std::string& kind) {
  return std::any_of(guest_workloads().begin(), guest_workloads().end(),
                     [&](const ProgramInfo& info) { return info.name == kind; });
}

std::unique_ptr<GuestVm> make_guest_vm(const WorkloadSpec& spec, const GuestPlatform& platform) {
  if (spec.kind != "ipi_benchmark") throw InternalError("no such guest workload: " + spec.kind);
  return std::make_unique<IpiBenchmark>(IpiBenchmark::parse(spec, platform), platform);
}

}  // namespace svmsim::workloads
