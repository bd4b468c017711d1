#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "apic/destination.hpp"
#include "apic/local_apic.hpp"
#include "workloads/program_spec.hpp"

namespace doctest {

template <>
struct StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines)
      text += "\n" + line;
    return text.c_str();
  }
};

}  // namespace doctest

namespace svmsim::workloads::test {

/// Executes sources as bare machines would: IF, the STI shadow, halting, and one local APIC per source. Every
/// action takes its own cycles and no more, unless `extra_cycles` says so.
class ProgramDriver {
 public:
  explicit ProgramDriver(std::vector<std::unique_ptr<WorkloadSource>> sources) : map_(ids(sources.size())) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      cpus_.push_back(std::make_unique<Cpu>(static_cast<std::uint32_t>(i), std::move(sources[i])));
    }
  }

  /// Runs until every source has ended or nothing can go on, or `budget` actions were executed.
  void run(std::size_t budget = 1'000'000'000) {
    bool progress = true;
    while (progress && budget > 0) {
      progress = false;
      for (auto& cpu : cpus_) {
        while (budget > 0 && step(*cpu)) {
          progress = true;
          --budget;
        }
      }
    }
  }

  [[nodiscard]] WorkloadSource& source(std::size_t index = 0) { return *cpus_[index]->source; }
  [[nodiscard]] bool ended(std::size_t index = 0) { return source(index).current() == nullptr; }
  [[nodiscard]] std::uint64_t halts(std::size_t index = 0) const { return cpus_[index]->halts; }
  [[nodiscard]] std::map<std::string, double> metrics(std::size_t index = 0) {
    std::map<std::string, double> result;
    for (const auto& [name, value] : source(index).metrics())
      result[name] = value;
    return result;
  }

  std::vector<std::string> log;  ///< one text per action, "rip action", while `logging`
  bool logging = false;
  bool lose_ipis = false;
  std::uint64_t extra_cycles = 0;  ///< added to every action

 private:
  struct Cpu {
    Cpu(std::uint32_t id, std::unique_ptr<WorkloadSource> what) : source(std::move(what)), apic(id) {
      interrupts_enabled = source->initial_state().interrupts_enabled;
      apic.write_msr(apic::msr_x2apic_svr, source->initial_state().apic_svr);
    }
    std::unique_ptr<WorkloadSource> source;
    apic::LocalApic apic;
    std::uint64_t tsc = 1000;
    bool interrupts_enabled = false;
    bool shadow = false;
    bool halted = false;
    std::uint64_t halts = 0;  // HLTs that found nothing to take
    std::vector<bool> frames;
  };

  static std::vector<std::uint32_t> ids(std::size_t count) {
    std::vector<std::uint32_t> result;
    for (std::uint32_t i = 0; i < count; ++i)
      result.push_back(i);
    return result;
  }

  bool step(Cpu& cpu) {
    if (cpu.interrupts_enabled && !cpu.shadow && cpu.apic.deliverable() >= 0) {
      cpu.halted = false;
      cpu.frames.push_back(cpu.interrupts_enabled);
      cpu.interrupts_enabled = false;
      const std::uint8_t vector = cpu.apic.acknowledge();
      cpu.source->interrupt(vector, cpu.tsc);
      if (logging)
        log.push_back(fmt::format("{:x} interrupt {:x}", cpu.source->handler_entry(vector), vector));
      return true;
    }
    if (cpu.halted) return false;
    const svm::GuestAction* action = cpu.source->current();
    if (action == nullptr) return false;
    if (logging) log.push_back(fmt::format("{:x} {}", action->rip, text(*action)));
    cpu.tsc += action->cycles + extra_cycles;
    const std::uint64_t result = execute(cpu, *action);
    cpu.source->retire(cpu.tsc, result);
    return true;
  }

  std::uint64_t execute(Cpu& cpu, const svm::GuestAction& action) {
    using svm::ActionKind;
    const bool shadow = action.kind == ActionKind::sti && !cpu.interrupts_enabled;
    switch (action.kind) {
      case ActionKind::cli:
        cpu.interrupts_enabled = false;
        break;
      case ActionKind::sti:
        cpu.interrupts_enabled = true;
        break;
      case ActionKind::hlt:
        cpu.halted = !(cpu.interrupts_enabled && cpu.apic.deliverable() >= 0);
        cpu.halts += cpu.halted ? 1U : 0U;
        break;
      case ActionKind::iret:
        cpu.interrupts_enabled = cpu.frames.back();
        cpu.frames.pop_back();
        break;
      case ActionKind::wrmsr:
        write_msr(cpu, action);
        break;
      case ActionKind::rdtsc:
        cpu.shadow = shadow;
        return cpu.tsc;
      default:
        break;
    }
    cpu.shadow = shadow;
    return 0;
  }

  void write_msr(Cpu& cpu, const svm::GuestAction& action) {
    if (!apic::is_x2apic_msr(action.number)) return;
    const apic::RegisterWrite write = cpu.apic.write_msr(action.number, action.operand[0]);
    if (write.effect != apic::WriteEffect::ipi || lose_ipis) return;
    map_.for_each_target(write.command, cpu.apic.id(),
                         [&](std::size_t index) { cpus_[index]->apic.accept(write.command.vector); });
  }

  static std::string text(const svm::GuestAction& action) {
    using svm::ActionKind;
    switch (action.kind) {
      case ActionKind::compute:
        return "compute";
      case ActionKind::nop:
        return "nop";
      case ActionKind::cli:
        return "cli";
      case ActionKind::sti:
        return "sti";
      case ActionKind::hlt:
        return "hlt";
      case ActionKind::pause:
        return "pause";
      case ActionKind::cpuid:
        return fmt::format("cpuid {:x}.{:x}", action.number, action.operand[0]);
      case ActionKind::rdtsc:
        return "rdtsc";
      case ActionKind::rdmsr:
        return fmt::format("rdmsr {:x}", action.number);
      case ActionKind::wrmsr:
        return fmt::format("wrmsr {:x}={:x}", action.number, action.operand[0]);
      case ActionKind::in:
        return fmt::format("in{} {:x}", action.size, action.number);
      case ActionKind::out:
        return fmt::format("out{} {:x}={:x}", action.size, action.number, action.operand[0]);
      case ActionKind::vmmcall:
        return fmt::format("vmmcall {} {} {} {} {}", action.number, action.operand[0], action.operand[1],
                           action.operand[2], action.operand[3]);
      case ActionKind::iret:
        return "iret";
      case ActionKind::memory_read:
        return fmt::format("read{} {:x}", action.size, action.operand[1]);
      case ActionKind::memory_write:
        return fmt::format("write{} {:x}={:x}", action.size, action.operand[1], action.operand[0]);
      case ActionKind::mov_from_cr8:
        return "mov from cr8";
      case ActionKind::mov_to_cr8:
        return fmt::format("mov cr8={:x}", action.operand[0]);
      default:
        return fmt::format("action {}", static_cast<unsigned>(action.kind));
    }
  }

  apic::DestinationMap map_;
  std::vector<std::unique_ptr<Cpu>> cpus_;
};

inline ProgramDriver drive(const WorkloadSpec& spec, unsigned vcpus = 1) {
  std::vector<std::unique_ptr<WorkloadSource>> sources;
  for (unsigned vcpu = 0; vcpu < vcpus; ++vcpu)
    sources.push_back(make_program(spec, vcpu, vcpus));
  return ProgramDriver(std::move(sources));
}

}  // namespace svmsim::workloads::test
