#include "model/waveform.hpp"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "model/machine.hpp"
#include "model/units.hpp"
#include "model/version.hpp"
#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

namespace {

// The numbers in the file's comment, whatever the order in CpuTime.
unsigned int number_of(CpuTime use) {
  constexpr unsigned int idle = 3;
  constexpr unsigned int task = 4;
  if (use == CpuTime::idle) return idle;
  return use == CpuTime::task ? task : static_cast<unsigned int>(use);
}

[[noreturn]] void fail(const std::string& path, const char* text) {
  throw UserError(Problem{path, 0, "", text, ""});
}

constexpr const char* legend =
    "$comment\n"
    "use (of a pCPU): 0 guest, 1 host, 2 halt polling, 3 idle, 4 another thread; tid: the host thread, 0 = "
    "none\n"
    "mode (kvm_vcpu::mode): 0 outside the guest, 1 in the guest, 2 exiting\n"
    "halted: the guest's HLT waits, in the guest or in KVM; if: RFLAGS.IF; poll: KVM halt polling\n"
    "irr_top, isr_top: highest vector of the IRR and the ISR, 0 = none\n"
    "is_running: its thread is on a pCPU, which KVM writes into AVIC's table as IsRunning\n"
    "$end\n";

std::uint64_t picoseconds(std::uint64_t raw_time, std::uint64_t tsc_hz) {
  const Wide cycles = cycles_of(raw_time);
  return static_cast<std::uint64_t>((cycles * 1'000'000'000'000U + tsc_hz / 2) / tsc_hz);
}

bool starts_with(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

// What sc_trace wrote, with times in picoseconds and without what differs between equal runs.
void convert(std::istream& raw, std::ostream& out, std::uint64_t tsc_hz) {
  std::string line;
  bool skipping = false;
  bool began = false;
  std::uint64_t last = 0;
  while (std::getline(raw, line)) {
    if (starts_with(line, "$date") || starts_with(line, "$comment")) skipping = true;
    if (starts_with(line, "$version")) {
      out << "$version\n     svmsim " << version << "\n$end\n\n" << legend << '\n';
      skipping = true;
    }
    if (skipping) {
      if (line.find("$end") != std::string::npos) skipping = false;
      continue;
    }
    if (!line.empty() && line.front() == '#') {
      const std::uint64_t time = picoseconds(std::stoull(line.substr(1)), tsc_hz);
      if (began && time == last) continue;
      began = true;
      last = time;
      out << '#' << time << '\n';
      continue;
    }
    out << line << '\n';
  }
}

unsigned int vector_or_zero(int vector) {
  return vector < 0 ? 0U : static_cast<unsigned int>(vector);
}

}  // namespace

Waveform::Waveform(std::string path, const Machine& machine, std::uint64_t tsc_hz)
    : path_(std::move(path)), raw_stem_(path_ + ".partial"), tsc_hz_(tsc_hz) {
  std::error_code error;
  const auto status = std::filesystem::status(path_, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(path_, "a waveform is written to a regular file");
  }
  if (!std::ofstream(raw_stem_ + ".vcd")) fail(path_, "the waveform file cannot be written");
  file_ = sc_core::sc_create_vcd_trace_file(raw_stem_.c_str());
  constexpr int use_bits = 3;
  constexpr int mode_bits = 2;
  constexpr int tid_bits = 16;
  constexpr int vector_bits = 8;
  for (const auto& cpu : machine.cpus()) {
    cpus_.push_back(std::make_unique<CpuSignals>(CpuSignals{cpu.get(), 0, 0}));
    const CpuSignals& signals = *cpus_.back();
    const std::string name = std::string(cpu->name()) + ".";
    sc_core::sc_trace(file_, signals.use, name + "use", use_bits);
    sc_core::sc_trace(file_, signals.tid, name + "tid", tid_bits);
  }
  for (const auto& vcpu : machine.vcpus()) {
    vcpus_.push_back(
        std::make_unique<VcpuSignals>(VcpuSignals{vcpu.get(), 0, false, false, 0, 0, false, false}));
    const VcpuSignals& signals = *vcpus_.back();
    const std::string name = std::string(vcpu->name()) + ".";
    sc_core::sc_trace(file_, signals.mode, name + "mode", mode_bits);
    sc_core::sc_trace(file_, signals.halted, name + "halted");
    sc_core::sc_trace(file_, signals.interrupt_flag, name + "if");
    sc_core::sc_trace(file_, signals.irr_top, name + "irr_top", vector_bits);
    sc_core::sc_trace(file_, signals.isr_top, name + "isr_top", vector_bits);
    sc_core::sc_trace(file_, signals.is_running, name + "is_running");
    sc_core::sc_trace(file_, signals.poll, name + "poll");
  }
  sample();
}

Waveform::~Waveform() {
  end_tracing();
  std::error_code error;
  std::filesystem::remove(raw_stem_ + ".vcd", error);
  std::filesystem::remove(raw_stem_, error);
}

void Waveform::end_tracing() noexcept {
  if (file_ == nullptr) return;
  sc_core::sc_close_vcd_trace_file(std::exchange(file_, nullptr));
}

void Waveform::sample() {
  for (const auto& signals : cpus_) {
    signals->use = number_of(signals->cpu->use());
    signals->tid = static_cast<unsigned int>(signals->cpu->current_tid());
  }
  for (const auto& signals : vcpus_) {
    Vcpu& vcpu = *signals->vcpu;
    const svm::GuestCpu& guest = vcpu.guest;
    const std::uint64_t rflags = guest.in_guest_mode() ? guest.rflags() : vcpu.vmcb.save.rflags;
    signals->mode = static_cast<unsigned int>(vcpu.mode);
    signals->halted = vcpu.mp_state == MpState::halted || (guest.in_guest_mode() && guest.halted());
    signals->interrupt_flag = (rflags & svm::rflags::interrupt) != 0;
    signals->irr_top = vector_or_zero(vcpu.apic().irr().highest());
    signals->isr_top = vector_or_zero(vcpu.apic().isr().highest());
    signals->is_running = vcpu.pcpu != nullptr && vcpu.pcpu->current_tid() == vcpu.tid;
    signals->poll = vcpu.polling;
  }
}

void Waveform::close() {
  end_tracing();
  const std::string raw_path = raw_stem_ + ".vcd";
  std::error_code error;
  {
    std::ifstream raw(raw_path);
    std::ofstream out(raw_stem_);
    convert(raw, out, tsc_hz_);
    out.flush();
    if (!raw.eof() || !out) fail(path_, "the waveform file could not be written whole");
  }
  std::filesystem::rename(raw_stem_, path_, error);
  if (error) fail(path_, "the waveform file could not be written whole");
}

}  // namespace svmsim::model
