#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apic/arbitration.hpp"
#include "apic/conformance/script.hpp"
#include "apic/cpu_events.hpp"
#include "apic/destination.hpp"
#include "apic/io_apic.hpp"
#include "apic/local_apic.hpp"
#include "apic/msi.hpp"

namespace svmsim::apic::conformance {

/// One APIC of a case, and the CPU's side of what bypasses its IRR.
struct LapicUnitSetup {
  std::uint32_t id = 0;
  LocalApicOptions options;
  CpuEvents::Options cpu;
};

struct LapicSetup {
  std::vector<LapicUnitSetup> units;
  ArbitrationPolicy arbitration = ArbitrationPolicy::vector_hashing;
  IoApic::Options io_apic;
  MsiDestination msi = MsiDestination::eight_bits;
};

/// Local APICs and an I/O APIC wired together, for the cases [[lapic]]: commands and messages reach their
/// targets at once, broadcast EOIs the I/O APIC, and time passes when an event says so.
class LapicMachine {
 public:
  static constexpr std::string_view unit_key = "apic";
  static constexpr std::string_view units_key = "apics";
  [[nodiscard]] static const std::vector<Verb<LapicMachine>>& verbs();
  [[nodiscard]] static const std::vector<Field<LapicMachine>>& fields();

  struct Unit {
    LocalApic apic;
    CpuEvents cpu;
  };

  /// What the last event led to. Texts are the words of docs/conformance.md.
  struct Outcome {
    std::string impossible = "none";  ///< why the event cannot happen: the case makes no sense
    bool fault = false;               ///< #GP(0)
    std::string effect = "none";
    std::optional<std::uint64_t> value;  ///< read
    std::vector<std::string> changed;
    EndOfInterrupt eoi;
    std::optional<IcrCommand> command;    ///< of an ICR write
    std::vector<std::uint64_t> targets;   ///< whom a command or message reached
    std::vector<std::string> receptions;  ///< what they did with it
    std::vector<std::string> actions;     ///< INIT and STARTUP
    std::uint64_t expiries = 0;           ///< of the timer, while time passed
    std::vector<std::uint64_t> expired_at;
  };

  explicit LapicMachine(const LapicSetup& setup);

  [[nodiscard]] std::size_t units() const noexcept { return units_.size(); }
  [[nodiscard]] const Unit& unit(std::size_t index) const { return units_[index]; }
  [[nodiscard]] const Outcome& outcome() const noexcept { return outcome_; }
  [[nodiscard]] const IoApic& io_apic() const noexcept { return io_apic_; }
  [[nodiscard]] std::uint64_t now_cycles() const noexcept { return now_; }
  [[nodiscard]] bool registers_are_msrs(std::size_t index) const {
    return units_[index].apic.mode() == ApicMode::x2apic;
  }
  /// A register as software reads it in the APIC's mode; #GP reads as all ones.
  [[nodiscard]] std::uint64_t register_value(std::size_t index, std::uint32_t offset) const;

  void begin_event() { outcome_ = {}; }
  [[nodiscard]] std::string outcome_text() const;

  // The events.
  void write_register(std::size_t index, std::uint32_t offset, std::uint64_t value);
  void read_register(std::size_t index, std::uint32_t offset);
  void write_msr(std::size_t index, std::uint32_t msr, std::uint64_t value);
  void read_msr(std::size_t index, std::uint32_t msr);
  void store(std::size_t index, std::uint32_t offset, std::uint32_t value, unsigned bytes);
  void load(std::size_t index, std::uint32_t offset, unsigned bytes);
  void send(std::size_t index, const IcrCommand& command);  ///< through the ICR
  void accept(std::size_t index, std::uint8_t vector, bool level);
  void receive(std::size_t index, const IcrCommand& command);
  void acknowledge(std::size_t index);
  void set_cr8(std::size_t index, std::uint8_t value);
  void signal(std::size_t index, LvtEntry entry);
  void set_lint(std::size_t index, std::size_t pin, bool asserted);
  void wait(std::uint64_t cycles, bool expire = true);  ///< `expire`: timers are attended to
  void jump_tsc(std::size_t index, std::int64_t delta) { units_[index].apic.tsc_jumped(delta); }
  void init(std::size_t index);
  void reset(std::size_t index);
  void boundary(std::size_t index, bool init_allowed);
  void take_nmi(std::size_t index);
  void take_smi(std::size_t index) { units_[index].cpu.take_smi(); }
  void iret(std::size_t index) { units_[index].cpu.iret(); }
  void message(const MsiMessage& message);
  void set_pin(std::size_t pin, bool asserted, unsigned source);
  void io_store(std::uint32_t offset, std::uint32_t value);
  void io_load(std::uint32_t offset);

 private:
  void written(std::size_t index, const RegisterWrite& write);
  void read(const RegisterRead& read);
  void note(std::size_t index, Reception reception, std::uint8_t vector);
  /// Delivers to everyone whom the command names; returns whether somebody accepted it.
  bool deliver(const IcrCommand& command, std::size_t sender);
  void tell_map(std::size_t index) { map_.update(index, units_[index].apic.address()); }

  std::vector<Unit> units_;
  DestinationMap map_;
  Arbiter arbiter_;
  IoApic io_apic_;
  MsiDestination msi_;
  std::uint64_t now_ = 0;
  Outcome outcome_;
};

/// Reads the keys of a case that describe the machine.
[[nodiscard]] LapicSetup read_lapic_setup(NodeTable& table);
/// Words of an outcome.
[[nodiscard]] const Choices& reception_choices();
[[nodiscard]] const Choices& effect_choices();
[[nodiscard]] const Choices& startup_choices();

}  // namespace svmsim::apic::conformance
