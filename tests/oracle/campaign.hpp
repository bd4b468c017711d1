#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/oracle/emulator.hpp"
#include "tests/oracle/model.hpp"
#include "tests/oracle/waivers.hpp"

namespace svmsim::oracle {

/// Counts of one emulator's run.
struct Tally {
  std::uint64_t asked = 0;
  std::uint64_t agreed = 0;
  std::uint64_t waived = 0;
  std::uint64_t unexplained = 0;
  std::uint64_t boots = 0;
  std::map<std::string, std::uint64_t> not_asked;       ///< by reason
  std::map<std::string, std::uint64_t> unexplained_by;  ///< by family and differing fields
  std::map<std::string, Tally> families;

  void count(const std::string& family, std::uint64_t Tally::*what) {
    ++(this->*what);
    ++(families[family].*what);
  }
};

/// Puts vectors to one emulator in boots of many, isolates those that it does not survive, and judges the
/// answers.
class Campaign {
 public:
  Campaign(EmulatorSettings settings, std::vector<Waiver>& waivers, unsigned batch, unsigned shown);

  /// Takes a vector in; false when it is not put to this emulator.
  bool add(Vector vector);
  /// Asks what has not been asked yet.
  void flush();

  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }
  [[nodiscard]] const Processor& processor() const noexcept { return processor_; }
  [[nodiscard]] EmulatorKind emulator() const noexcept { return settings_.kind; }
  /// Answers of this emulator to some vectors, without a judgement; vectors that it does not survive are
  /// absent.
  [[nodiscard]] std::map<std::uint32_t, Result> ask(const std::vector<const Vector*>& vectors);
  /// Judges one answer; null: the emulator died or hung. `expected` is GuestCpu's.
  void judge(const Vector& vector, const Result& expected, const Result* seen);

 private:
  EmulatorSettings settings_;
  std::vector<Waiver>& waivers_;
  std::size_t batch_;
  unsigned shown_;
  Processor processor_;
  bool processor_known_ = false;
  static constexpr unsigned max_lost = 10;
  unsigned lost_ = 0;  ///< vectors that the emulator did not survive
  std::vector<Vector> pending_;
  Tally tally_;
};

/// What the emulators of Debian 12 report; the real one replaces it at the first boot.
[[nodiscard]] Processor usual_processor(EmulatorKind kind);

/// The idle-HLT intercept, which no emulator has, composed from two of its answers (docs/oracle.md). Returns
/// the number of states in which the readings of the manual differ, which are not judged.
std::uint64_t compose_idle_hlt(Campaign& campaign);

}  // namespace svmsim::oracle
