#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace svmsim::oracle {

/// An explained disagreement between an emulator and GuestCpu: where it happens, who is right by the manual,
/// and why.
struct Waiver {
  std::string id;
  std::string emulator;              ///< "qemu" or "bochs"
  std::vector<std::string> all;      ///< tags that the vector must have; a tag "a|b" is either
  std::vector<std::string> none;     ///< tags that it must not have
  std::vector<std::string> differs;  ///< the only fields that may differ; empty: any
  std::string reason;
  std::string section;     ///< of the manual, by which GuestCpu is right
  std::uint64_t used = 0;  ///< disagreements that it explained

  [[nodiscard]] bool applies(std::string_view emulator_name, const std::set<std::string>& tags,
                             const std::vector<std::string>& differing) const;
};

/// Reads the file; an unknown key, a missing reason or a second waiver of the same id is a UserError.
[[nodiscard]] std::vector<Waiver> read_waivers(const std::string& path);

}  // namespace svmsim::oracle
