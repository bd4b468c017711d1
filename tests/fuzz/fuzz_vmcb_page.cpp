// Any VMCB page and any program: GuestCpu never throws, its steps are documented ones, and VMRUN's verdict,
// the list of violations and the report agree.
//
// The input is a stream. A first byte chooses features and readings; then comes the page, either raw or as
// changes to a legal one; the rest is a program, an action and pending events at a time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/table_environment.hpp"
#include "svm/vmcb_dump/dump_fields.hpp"
#include "svm/vmcb_dump/explain.hpp"

namespace {

using namespace svmsim::svm;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  /// The next number; zeros when the input ends.
  template <class Number>
  Number take() {
    Number value{};
    const std::size_t length = std::min(sizeof(value), size_);
    if (length != 0) std::memcpy(&value, data_, length);
    data_ += length;
    size_ -= length;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

Vmcb legal_vmcb() {
  Vmcb vmcb{};
  for (const Intercept intercept : {Intercept::vmrun, Intercept::nmi, Intercept::shutdown})
    set_intercept(vmcb.control, intercept, true);
  vmcb.control.asid = 1;
  vmcb.control.nested_ctl = nested_ctl::np_enable;
  vmcb.save.efer = efer::svme | efer::lme | efer::lma;
  vmcb.save.cr0 = cr0::pg | cr0::pe | cr0::wp;
  vmcb.save.cr4 = cr4::pae;
  vmcb.save.rflags = rflags::always_one;
  vmcb.save.rip = 0x10'0000;
  vmcb.save.cs.attrib = 0x029b;
  vmcb.save.g_pat = 0x0007'0406'0007'0406;
  vmcb.save.idtr.limit = 0xfff;
  return vmcb;
}

Vmcb take_page(Input& input, bool raw) {
  if (raw) return input.take<Vmcb>();
  Vmcb vmcb = legal_vmcb();
  for (unsigned changes = input.take<std::uint8_t>() % 24; changes > 0; --changes) {
    const auto field = static_cast<Field>(input.take<std::uint8_t>() % field_count);
    write_field(vmcb, field, input.take<std::uint64_t>());
  }
  return vmcb;
}

GuestAction take_action(Input& input, std::uint64_t rip) {
  constexpr auto kinds = static_cast<unsigned>(ActionKind::vmgexit) + 1;
  GuestAction action;
  action.kind = static_cast<ActionKind>(input.take<std::uint8_t>() % kinds);
  const auto shape = input.take<std::uint8_t>();
  action.length = shape & 0xfU;
  action.cpl = shape >> 6;
  action.size = input.take<std::uint8_t>();
  action.flags = input.take<std::uint8_t>();
  action.gpr = action.flags;
  action.segment = action.size;
  action.number = input.take<std::uint32_t>();
  action.rip = rip;
  action.operand[0] = input.take<std::uint64_t>();
  action.operand[1] = input.take<std::uint32_t>();
  action.operand[2] = action.operand[0] >> 32;
  return action;
}

void require(bool fact) {
  if (!fact) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>();
  const FeatureSet features =
      FeatureSet::from_cpuid({1, 0x8000, 0x40, (mode & 1U) != 0 ? 0xffff'ffff : input.take<std::uint32_t>()});
  Knobs knobs;
  knobs.idle_hlt_pending = static_cast<IdleHltPending>((mode >> 1) % 3);
  Vmcb vmcb = take_page(input, (mode & 0x80U) != 0);

  const bool legal = vmrun_legal(vmcb, features, knobs, {});
  require(legal == vmrun_violations(vmcb, features, knobs).empty());
  if ((mode & 0x30U) == 0) {  // a report takes longer than a program
    ExplainOptions options;
    options.features = features;
    options.physical_address_bits = 52;
    options.knobs = knobs;
    const VmcbReport report = explain(image_of(vmcb), options);
    require(!to_json(report).empty());
    constexpr std::uint64_t sev = nested_ctl::sev_enable | nested_ctl::sev_es_enable;
    if ((vmcb.control.nested_ctl & sev) == 0) require(report.legal() == legal);
  }

  TableEnvironment environment;
  environment.ppr = input.take<std::uint8_t>();
  environment.highest_irr = static_cast<int>(input.take<std::uint8_t>()) - 1;
  GuestCpu cpu(features, knobs);
  Step step = cpu.vmrun(vmcb, (mode & 8U) != 0, environment);
  if (!legal) require(step.kind == StepKind::vmexit && vmcb.control.exit_code == exit_code::invalid);
  for (int n = 0; n < 200 && cpu.in_guest_mode() && !input.empty(); ++n) {
    const auto pending = input.take<std::uint8_t>();
    const PhysicalEvents events{pending == 1, pending == 2, pending == 3, pending == 4};
    step = cpu.boundary(events, environment);
    if (step.kind == StepKind::none && cpu.in_guest_mode() && !cpu.halted())
      step = cpu.execute(take_action(input, cpu.rip()), environment);
    if (step.kind == StepKind::shutdown || step.kind == StepKind::reset) break;
  }
  if (step.kind == StepKind::vmexit) {
    require(!cpu.gif() && !cpu.in_guest_mode());
    require((vmcb.control.event_inj & event_inj::valid) == 0);
  }
  return 0;
}
