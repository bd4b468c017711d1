#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <systemc>
#include <vector>

#include "model/wave_probe.hpp"

namespace svmsim::model {

class Machine;
class PhysicalCpu;
class Vcpu;

/// A VCD file of a run, written through sc_trace. Scopes go by module name: machine.cpu0, machine.vm0_vcpu0.
///
/// SystemC writes kernel time, whose unit is 2^-16 of a TSC cycle (model/time.hpp), and the date. close()
/// turns that into picoseconds of simulated time and leaves the date out, so that equal runs give equal
/// files. What one moment did is one change: several within one cycle leave the last.
class Waveform final : public WaveProbe {
 public:
  /// Throws UserError when the file cannot be made. The machine must outlive close().
  Waveform(std::string path, const Machine& machine, std::uint64_t tsc_hz);
  /// Without close() nothing is left behind.
  ~Waveform() override;

  void sample() override;
  /// Writes the file under its name. Throws UserError when it could not be written whole.
  void close();

 private:
  struct CpuSignals {
    const PhysicalCpu* cpu;
    unsigned int use;
    unsigned int tid;
  };
  struct VcpuSignals {
    Vcpu* vcpu;
    unsigned int mode;
    bool halted;
    bool interrupt_flag;
    unsigned int irr_top;
    unsigned int isr_top;
    bool is_running;
    bool poll;
  };

  void end_tracing() noexcept;

  std::string path_;
  std::string raw_stem_;  ///< sc_create_vcd_trace_file adds ".vcd"
  std::uint64_t tsc_hz_;
  sc_core::sc_trace_file* file_ = nullptr;
  // sc_trace keeps the addresses of the values.
  std::vector<std::unique_ptr<CpuSignals>> cpus_;
  std::vector<std::unique_ptr<VcpuSignals>> vcpus_;
};

}  // namespace svmsim::model
