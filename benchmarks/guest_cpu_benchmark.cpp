// Guest actions per second of GuestCpu alone: no time, no model, no hypervisor but the VMRUN that goes on
// behind an exit. Items are actions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "svm/action_table.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/intercept.hpp"

namespace {

using namespace svmsim::svm;

/// Answers without a look anywhere: what is measured is GuestCpu.
class FlatEnvironment final : public GuestEnvironment {
 public:
  std::uint64_t host_tsc() override { return tsc_ += 100; }
  MsrAccess read_msr(std::uint32_t) override { return {false, msr_}; }
  MsrAccess write_msr(std::uint32_t, std::uint64_t value) override {
    msr_ = value;
    return {};
  }
  std::uint64_t read_port(std::uint16_t, unsigned) override { return 0; }
  void write_port(std::uint16_t, unsigned, std::uint64_t) override {}
  std::array<std::uint32_t, 4> cpuid(std::uint32_t, std::uint32_t) override { return {1, 2, 3, 4}; }
  bool page_allows(std::uint64_t, PageAccess) override { return true; }
  std::uint64_t handler_entry(std::uint8_t vector) override { return 0x10'0000U + 0x40U * vector; }
  const MsrPermissionMap& msr_permission_map(std::uint64_t) override { return msr_map; }
  const IoPermissionMap& io_permission_map(std::uint64_t) override { return io_map; }

  MsrPermissionMap msr_map;
  IoPermissionMap io_map;

 private:
  std::uint64_t tsc_ = 0;
  std::uint64_t msr_ = 0;
};

FeatureSet every_feature() {
  FeatureSet features;
  for (const FeatureInfo& info : all_features())
    features.set(info.feature);
  features.set(Feature::avic, false);
  return features;
}

Vmcb long_mode_guest() {
  Vmcb vmcb{};
  set_intercept(vmcb.control, Intercept::vmrun, true);
  vmcb.control.asid = 1;
  vmcb.control.int_ctl = int_ctl::v_intr_masking;
  vmcb.control.nested_ctl = nested_ctl::np_enable;
  VmcbSave& save = vmcb.save;
  save.efer = efer::svme | efer::lme | efer::lma;
  save.cr0 = cr0::pg | cr0::pe | cr0::wp;
  save.cr4 = cr4::pae | cr4::osxsave;
  save.dr6 = dr6::always_one;
  save.dr7 = dr7::always_one;
  save.g_pat = 0x0007'0406'0007'0406;
  save.cs.attrib = 0x029b;
  save.idtr.limit = 0xfff;
  save.rip = 0x1000;
  return vmcb;
}

GuestAction act(ActionKind kind, std::uint32_t number = 0, std::uint64_t value = 0,
                std::uint64_t address = 0) {
  GuestAction action = usual_action(kind);
  action.number = number;
  action.operand = {value, address, 0, 0};
  action.cycles = 100;
  return action;
}

/// What a kernel does between two exits, in the proportions of an idle loop with timers and some paging.
std::vector<GuestAction> kernel_mix() {
  using K = ActionKind;
  return {act(K::compute),
          act(K::cli),
          act(K::rdtsc),
          act(K::memory_read, 0, 0, 0x5000),
          act(K::sti),
          act(K::nop),
          act(K::compute),
          act(K::wrmsr, 0xc000'0101, 1),
          act(K::memory_write, 0, 7, 0x6000),
          act(K::pushf),
          act(K::popf, 0, 2),
          act(K::rdmsr, 0xc000'0102),
          act(K::mov_to_cr, 3, 0x1000),
          act(K::invlpg, 0, 0, 0x7000),
          act(K::mov_to_cr8, 0, 0),
          act(K::cpuid, 1),
          act(K::int_n, 0x80),
          act(K::iret),
          act(K::out, 0x80, 1),
          act(K::compute)};
}

/// Runs the actions round and round; behind an exit the host steps over the instruction and enters again.
void run(benchmark::State& state, const std::vector<GuestAction>& actions,
         std::initializer_list<Intercept> intercepts) {
  Vmcb vmcb = long_mode_guest();
  for (const Intercept intercept : intercepts)
    set_intercept(vmcb.control, intercept, true);
  FlatEnvironment environment;
  environment.msr_map.fill(true);
  environment.io_map.fill(true);
  GuestCpu cpu(every_feature());
  cpu.vmrun(vmcb, true, environment);
  std::uint64_t exits = 0;
  for (auto _ : state) {
    for (GuestAction action : actions) {
      if (cpu.event_possible()) cpu.boundary({}, environment);
      action.rip = cpu.rip();
      const Step step = cpu.execute(action, environment);
      benchmark::DoNotOptimize(step.result);
      if (step.kind == StepKind::vmexit) {
        ++exits;
        vmcb.save.rip = vmcb.control.next_rip;
        cpu.vmrun(vmcb, true, environment);
      }
    }
  }
  const auto executed = static_cast<double>(state.iterations()) * static_cast<double>(actions.size());
  state.counters["actions"] = benchmark::Counter(executed, benchmark::Counter::kIsRate);
  state.counters["exits"] = benchmark::Counter(static_cast<double>(exits), benchmark::Counter::kIsRate);
}

void without_exits(benchmark::State& state) {
  run(state, kernel_mix(), {});
}
BENCHMARK(without_exits);

/// The exits of KVM's default intercepts: MSRs, ports, CPUID, HLT; one action in five exits.
void with_exits(benchmark::State& state) {
  run(state, kernel_mix(), {Intercept::msr, Intercept::ioio, Intercept::cpuid, Intercept::hlt});
}
BENCHMARK(with_exits);

void every_action_exits(benchmark::State& state) {
  run(state, {act(ActionKind::hlt)}, {Intercept::hlt});
}
BENCHMARK(every_action_exits);

}  // namespace
