// What can happen to a VM with AVIC in a case.

#include "apic/conformance/avic_machine.hpp"

namespace svmsim::apic::conformance {

namespace {

using Machine = AvicMachine;
using Action = Verb<Machine>::Action;

[[nodiscard]] std::uint32_t number32(NodeTable& table, std::string_view key) {
  return static_cast<std::uint32_t>(required(table, key, UINT32_MAX));
}

[[nodiscard]] std::uint8_t number8(NodeTable& table, std::string_view key) {
  return static_cast<std::uint8_t>(required(table, key, UINT8_MAX));
}

/// An event without keys of its own.
template <void (Machine::*member)(std::size_t)>
Action plain(NodeTable&, std::size_t unit) {
  return [unit](Machine& m) { (m.*member)(unit); };
}
template <void (Machine::*member)()>
Action plain_machine(NodeTable&, std::size_t) {
  return [](Machine& m) { (m.*member)(); };
}

Action read_write(NodeTable& table, std::size_t unit) {
  const auto written = read_register_value(table).value_or(RegisterValue{});
  return [=](Machine& m) { m.write_register(unit, written.offset, written.value); };
}

Action read_read(NodeTable& table, std::size_t unit) {
  const std::uint32_t offset = read_register_name(table).value_or(0);
  return [=](Machine& m) { m.read_register(unit, offset); };
}

Action read_wrmsr(NodeTable& table, std::size_t unit) {
  const std::uint32_t msr = number32(table, "msr");
  const std::uint64_t value = required(table, "value", UINT64_MAX);
  return [=](Machine& m) { m.write_msr(unit, msr, value); };
}

Action read_rdmsr(NodeTable& table, std::size_t unit) {
  const std::uint32_t msr = number32(table, "msr");
  return [=](Machine& m) { m.read_msr(unit, msr); };
}

Action read_store(NodeTable& table, std::size_t unit) {
  const auto offset = static_cast<std::uint32_t>(required(table, "offset", 0xfff));
  const std::uint32_t value = number32(table, "value");
  return [=](Machine& m) { m.store(unit, offset, value); };
}

Action read_load(NodeTable& table, std::size_t unit) {
  const auto offset = static_cast<std::uint32_t>(required(table, "offset", 0xfff));
  return [=](Machine& m) { m.load(unit, offset); };
}

Action read_ipi(NodeTable& table, std::size_t unit) {
  const IcrCommand command = read_command(table);
  return [=](Machine& m) { m.send(unit, command); };
}

Action read_eoi(NodeTable&, std::size_t unit) {
  return [=](Machine& m) { m.write_register(unit, APIC_EOI, 0); };
}

Action read_cr8(NodeTable& table, std::size_t unit) {
  const auto value = static_cast<std::uint8_t>(required(table, "value", 15));
  return [=](Machine& m) { m.set_cr8(unit, value); };
}

struct VmrunKeys {
  std::optional<std::uint8_t> v_tpr;
  bool avic = true;
};

[[nodiscard]] VmrunKeys read_vmrun_keys(NodeTable& table) {
  VmrunKeys keys;
  if (const auto v_tpr = table.number("v_tpr", 15)) keys.v_tpr = static_cast<std::uint8_t>(*v_tpr);
  keys.avic = table.boolean("avic").value_or(true);
  return keys;
}

Action read_vmrun(NodeTable& table, std::size_t unit) {
  const VmrunKeys keys = read_vmrun_keys(table);
  return [=](Machine& m) { m.vmrun(unit, keys.v_tpr, keys.avic); };
}

// VMRUN and the end of its microcode.
Action read_enter(NodeTable& table, std::size_t unit) {
  const VmrunKeys keys = read_vmrun_keys(table);
  return [=](Machine& m) {
    m.vmrun(unit, keys.v_tpr, keys.avic);
    m.entered(unit);
  };
}

Action read_ring(NodeTable& table, std::size_t) {
  const std::uint64_t value = required(table, "value", UINT64_MAX);
  return [=](Machine& m) { m.ring_by_msr(value); };
}

Action read_request(NodeTable& table, std::size_t unit) {
  const std::uint8_t vector = number8(table, "vector");
  const bool level = table.boolean("level").value_or(false);
  return [=](Machine& m) { m.request(unit, vector, level); };
}

Action read_withdraw(NodeTable& table, std::size_t unit) {
  const std::uint8_t vector = number8(table, "vector");
  return [=](Machine& m) { m.withdraw(unit, vector); };
}

Action read_poke(NodeTable& table, std::size_t unit) {
  const auto written = read_register_value(table).value_or(RegisterValue{});
  return [=](Machine& m) { m.poke(unit, written.offset, static_cast<std::uint32_t>(written.value)); };
}

Action read_set_entry(NodeTable& table, std::size_t unit) {
  const std::uint64_t raw = required(table, "raw", UINT64_MAX);
  return [=](Machine& m) { m.set_entry(unit, raw); };
}

Action read_load_vcpu(NodeTable& table, std::size_t unit) {
  std::optional<std::uint32_t> host;
  if (const auto on = table.number("on", 0xfff)) host = static_cast<std::uint32_t>(*on);
  return [=](Machine& m) { m.load_vcpu(unit, host); };
}

Action read_wait(NodeTable& table, std::size_t) {
  const std::uint64_t cycles = required(table, "cycles", std::uint64_t{1} << 40);
  return [=](Machine& m) { m.wait(cycles); };
}

Action read_irte(NodeTable& table, std::size_t unit) {
  if (table.node().find("low") != nullptr) {
    const Irte irte{required(table, "low", UINT64_MAX), required(table, "high", UINT64_MAX)};
    return [=](Machine& m) { m.set_irte(irte); };
  }
  const std::uint8_t vector = number8(table, "vector");
  const auto tag = static_cast<std::uint32_t>(table.number("tag", UINT32_MAX).value_or(0));
  return [=](Machine& m) { m.make_irte(unit, vector, tag); };
}

Action read_irte_run(NodeTable& table, std::size_t) {
  const std::uint32_t host = number32(table, "on");
  return [=](Machine& m) { m.irte_running(host); };
}

Action read_irte_stop(NodeTable& table, std::size_t) {
  const bool log = table.boolean("ga_log").value_or(false);
  return [=](Machine& m) { m.irte_stopped(log); };
}

Action read_post(NodeTable& table, std::size_t) {
  const auto device = static_cast<std::uint16_t>(table.number("device", UINT16_MAX).value_or(0));
  return [=](Machine& m) { m.post(device); };
}

}  // namespace

const std::vector<Verb<AvicMachine>>& AvicMachine::verbs() {
  static const std::vector<Verb<Machine>> all{
      {"write", read_write},
      {"read", read_read},
      {"wrmsr", read_wrmsr},
      {"rdmsr", read_rdmsr},
      {"store", read_store},
      {"load", read_load},
      {"ipi", read_ipi},
      {"eoi", read_eoi},
      {"cr8", read_cr8},
      {"acknowledge", plain<&Machine::acknowledge>},
      {"hlt", plain<&Machine::hlt>},
      {"vmrun", read_vmrun},
      {"entered", plain<&Machine::entered>},
      {"enter", read_enter},
      {"vmexit", plain<&Machine::vmexit>},
      {"doorbell", plain<&Machine::doorbell>},
      {"doorbell_msr", read_ring},
      {"request", read_request},
      {"withdraw", read_withdraw},
      {"poke", read_poke},
      {"set_entry", read_set_entry},
      {"load_vcpu", read_load_vcpu},
      {"put_vcpu", plain<&Machine::put_vcpu>},
      {"wait", read_wait},
      {"irte", read_irte},
      {"irte_run", read_irte_run},
      {"irte_stop", read_irte_stop},
      {"post", read_post},
      {"take_log_entry", plain_machine<&Machine::take_log_entry>},
      {"restart_log", plain_machine<&Machine::restart_log>},
  };
  return all;
}

}  // namespace svmsim::apic::conformance
