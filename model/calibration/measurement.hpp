#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "svm/user_error.hpp"

namespace svmsim::model::calibration {

/// What a measured number is.
enum class MeasurementKind : std::uint8_t {
  round_trip,  ///< cycles of one iteration of a microbenchmark, as its guest sees them
  exit_time,   ///< mean time from kvm_exit to the next kvm_entry of one exit reason
};

struct Measurement {
  std::string source;  ///< file
  std::uint64_t line = 0;
  MeasurementKind kind = MeasurementKind::round_trip;
  std::string name;         ///< the microbenchmark, or the exit reason
  std::string workload;     ///< what ran: a built-in program, or the path of a scenario
  std::uint64_t count = 0;  ///< exits behind a mean; 0 = the text does not say
  double cycles = 0.0;      ///< TSC cycles
  double error_cycles =
      0.0;  ///< one standard error, by the text: its last digit and what it says of the spread

  [[nodiscard]] std::string place() const;  ///< "FILE:LINE"
};

/// A line that was understood, but that nothing can be learned from.
struct UnusedLine {
  std::string source;
  std::uint64_t line = 0;
  std::string name;
  std::string reason;  ///< one sentence without a final full stop
};

struct MeasurementSet {
  std::vector<Measurement> measurements;  ///< in the order of the files and their lines
  std::vector<UnusedLine> unused;
};

/// Reads the files of `inputs`, each a path, or WORKLOAD:PATH for tables of a known guest. A file holds
/// tables of `perf kvm stat report` (any layout), lines `NAME CYCLES` as kvm-unit-tests' vmexit prints them,
/// or both; other lines are left alone. Adds a problem for each file that gives nothing, by the reasons of
/// its lines. Throws TraceError when a file cannot be read at all.
[[nodiscard]] MeasurementSet read_measurements(const std::vector<std::string>& inputs, std::uint64_t tsc_hz,
                                               std::vector<Problem>& problems);

/// The program whose exits of this reason all cost the same in every guest, so that a row of a table says
/// something without its workload; "" for all others.
[[nodiscard]] std::string reference_program(const std::string& exit_reason);

/// The built-in program that a line of kvm-unit-tests names ("ipi+halt"); "" when there is none.
[[nodiscard]] std::string benchmark_program(const std::string& name);

}  // namespace svmsim::model::calibration
