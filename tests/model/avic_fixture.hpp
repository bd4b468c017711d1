#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

/// How the guests of AVIC's tests reach their APIC.
enum class GuestApic { x2apic, xapic };

/// Lines of a program file that write an APIC register.
inline std::string apic_write(GuestApic apic, unsigned offset, const std::string& value,
                              const std::string& more = "") {
  char where[80];
  if (apic == GuestApic::x2apic) {
    std::snprintf(where, sizeof where, "{ do = \"wrmsr\", msr = 0x%x, value = ", 0x800 + (offset >> 4));
  } else {
    std::snprintf(where, sizeof where,
                  "{ do = \"memory_write\", address = 0x%x, size = 4, value = ", 0xfee00000U + offset);
  }
  return where + value + more + " },\n";
}

/// An ICR write to the physical ID `destination`.
inline std::string send(GuestApic apic, unsigned destination, unsigned low) {
  char value[40];
  if (apic == GuestApic::x2apic) {
    std::snprintf(value, sizeof value, "0x%x%08x", destination, low);
    return apic_write(apic, 0x300, value);
  }
  std::snprintf(value, sizeof value, "0x%x", destination << 24);
  std::string text = apic_write(apic, 0x310, value);
  std::snprintf(value, sizeof value, "0x%x", low);
  return text + apic_write(apic, 0x300, value);
}

inline std::string compute(std::uint64_t cycles) {
  return "{ do = \"compute\", cycles = " + std::to_string(cycles) + " },\n";
}
inline std::string plain(const std::string& action) {
  return "{ do = \"" + action + "\" },\n";
}
inline std::string halt_until(unsigned vector) {
  return "{ do = \"halt_until\", vector = " + std::to_string(vector) + " },\n";
}

/// A guest program for the time of a test: what each vCPU does once, with handlers of the vectors that end
/// with EOI, or with the actions given instead, and IRET.
class GuestProgram {
 public:
  GuestProgram(GuestApic apic, const std::vector<std::string>& vcpus,
               const std::vector<unsigned>& vectors = {0x41}, bool interrupts = true,
               const std::string& end_of_interrupt = "EOI") {
    static int number = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("svmsim_avic_" + std::to_string(::getpid()) + "_" + std::to_string(number++) + ".toml"))
                .string();
    std::ofstream out(path_);
    out << "name = \"test\"\ndoc = \"test\"\nvcpus = " << vcpus.size()
        << "\n[initial]\napic_svr = 0x1ff\ninterrupts_enabled = " << (interrupts ? "true" : "false") << "\n";
    for (std::size_t i = 0; i < vcpus.size(); ++i)
      out << "[[vcpu]]\nvcpu = " << i << "\nbody = [\n" << vcpus[i] << "]\n";
    for (const unsigned vector : vectors)
      out << "[[handler]]\nvector = " << vector << "\nactions = [\n"
          << (end_of_interrupt == "EOI" ? apic_write(apic, 0xb0, "0") : end_of_interrupt)
          << "{ do = \"iret\" },\n]\n";
  }
  GuestProgram(const GuestProgram&) = delete;
  GuestProgram& operator=(const GuestProgram&) = delete;
  ~GuestProgram() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct AvicRun {
  RunResult result;
  std::vector<workloads::TraceEvent> events;
  workloads::KernelGeneration kernel = workloads::KernelGeneration::v6_12;

  /// "avic_incomplete_ipi 1, hlt 2": exits of a vCPU by name.
  [[nodiscard]] std::string exits(unsigned vcpu) const {
    std::map<std::string, std::uint64_t> counted;
    for (const auto& row : result.vcpus[vcpu].exits)
      counted[exit_row_name(row.code)] = row.counter.count;
    std::string text;
    for (const auto& [name, count] : counted)
      text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
    return text;
  }
  [[nodiscard]] std::uint64_t count(workloads::EventKind kind) const {
    std::uint64_t n = 0;
    for (const auto& event : events)
      n += event.kind == kind ? 1U : 0U;
    return n;
  }
  /// Texts of the events of one kind.
  [[nodiscard]] std::vector<std::string> texts(workloads::EventKind kind) const {
    std::vector<std::string> lines;
    for (const auto& event : events)
      if (event.kind == kind) lines.push_back(workloads::event_text(event, kernel));
    return lines;
  }
  [[nodiscard]] const ApicvInhibit* inhibit(const std::string& reason) const {
    for (const ApicvInhibit& row : result.apicv_inhibits)
      if (row.reason == reason) return &row;
    return nullptr;
  }
};

/// The scenario of AVIC's tests: every vCPU on a pCPU of its own, no tick, AVIC on.
inline Scenario avic_scenario(const std::string& kind, unsigned vcpus,
                              std::vector<std::string> overrides = {}) {
  std::vector<std::string> all{"host.pcpus=" + std::to_string(vcpus), "vm.vcpus=" + std::to_string(vcpus),
                               "host.hz=0", "kvm.avic=true"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return scenario_of(kind, all);
}

inline AvicRun run_avic(const Scenario& scenario) {
  Simulation simulation(scenario);
  RecordingSink sink;
  simulation.add_sink(sink);
  AvicRun run;
  run.kernel = scenario.host.kernel;
  run.result = simulation.run();
  run.events = std::move(sink.events);
  return run;
}

inline AvicRun run_avic(const GuestProgram& program, unsigned vcpus,
                        std::vector<std::string> overrides = {}) {
  return run_avic(avic_scenario(program.path(), vcpus, std::move(overrides)));
}

}  // namespace svmsim::model::test
