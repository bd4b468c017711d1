#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config/cost_profile.hpp"
#include "model/policy/idle_governor.hpp"
#include "svm/features.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

/// One cost of a profile, with what identified the number.
struct ProfileCost {
  std::string name;
  std::int64_t value = 0;
  std::string unit;
  std::string source;
};

/// A host's CPU and costs: model/profiles/*.toml, or a user's file of the same form.
struct Profile {
  std::string name;
  std::string doc;
  std::string cpu;
  unsigned family = 0;  ///< CPUID family, on which some kernel defaults depend; 0 = unknown
  std::uint64_t tsc_hz = 0;
  svm::FeatureSet features;
  Costs cost;
  std::vector<ProfileCost> costs;                 ///< the same costs, in order of declaration
  std::vector<CState> cstates;                    ///< by rising latency
  std::vector<std::string> cstate_sources;        ///< of the states, in their order
  std::optional<IdleGovernorKind> idle_governor;  ///< of this host; absent = menu
};

/// Names of the profiles that come with svmsim, in alphabetical order.
[[nodiscard]] std::vector<std::string> builtin_profile_names();

/// A built-in profile. Throws InternalError for an unknown name or a file of ours that is wrong.
[[nodiscard]] const Profile& builtin_profile(const std::string& name);

/// Reads a profile from TOML text; adds everything that is wrong with it to `problems`.
[[nodiscard]] Profile parse_profile(const std::string& text, const std::string& source,
                                    std::vector<Problem>& problems);

/// A built-in name, or the path of a profile file (a name with a '/' or a suffix is a path). Throws
/// UserError.
[[nodiscard]] Profile load_profile(const std::string& name_or_path);

/// The profile as the text of a file that parse_profile() reads as the same profile.
[[nodiscard]] std::string profile_toml(const Profile& profile);

}  // namespace svmsim::model
