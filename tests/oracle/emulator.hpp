#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/knobs.hpp"
#include "tests/oracle/result.hpp"
#include "tests/oracle/vector.hpp"

namespace svmsim::oracle {

enum class EmulatorKind : std::uint8_t { qemu, bochs };

[[nodiscard]] std::string_view name_of(EmulatorKind kind) noexcept;

struct EmulatorSettings {
  EmulatorKind kind = EmulatorKind::qemu;
  std::string kernel;            ///< 32-bit ELF file
  std::string work_directory;    ///< exists; for the vector file, the ISO image and the output
  unsigned start_limit_s = 120;  ///< until the first line; of a loaded machine
  unsigned answer_limit_s = 10;  ///< between two lines
};

enum class BootEnd : std::uint8_t { complete, died, timed_out };

/// What came of one boot.
struct Boot {
  BootEnd end = BootEnd::died;
  std::optional<Processor> processor;
  std::map<std::uint32_t, Result> results;
  std::string words;  ///< the kernel's own failure message, or the emulator's last lines
};

/// Boots the kernel in the emulator and lets it answer the vectors, in their order. A boot that makes no
/// progress within the limits is ended. Throws UserError when the emulator or a tool that it needs is not
/// there.
[[nodiscard]] Boot boot(const EmulatorSettings& settings, const std::vector<const Vector*>& vectors);

/// Where the manual leaves a point open (svm/knobs.hpp), what the emulator does there: GuestCpu is set to the
/// same.
[[nodiscard]] svm::Knobs knobs_of(EmulatorKind kind);

/// Why this vector is not put to that emulator (it would hang or abort it, or the question is another one
/// there), or "".
[[nodiscard]] std::string_view not_askable(EmulatorKind kind, const Vector& vector);

}  // namespace svmsim::oracle
