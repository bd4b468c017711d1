#include <fmt/format.h>

#include "model/config/parameters.hpp"
#include "model/config/profile.hpp"

namespace svmsim::model {

namespace {

/// A basic string of TOML.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\u{:04x}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

const char* governor_name(IdleGovernorKind kind) {
  switch (kind) {
    case IdleGovernorKind::none:
      return "none";
    case IdleGovernorKind::menu:
      return "menu";
    case IdleGovernorKind::teo:
      return "teo";
  }
  return "menu";
}

}  // namespace

std::string profile_toml(const Profile& profile) {
  std::string text = fmt::format("name = {}\ndoc = {}\ncpu = {}\n", quoted(profile.name), quoted(profile.doc),
                                 quoted(profile.cpu));
  if (profile.family != 0) text += fmt::format("family = 0x{:x}\n", profile.family);
  text += fmt::format("tsc_hz = {}\n", profile.tsc_hz);
  if (profile.idle_governor)
    text += fmt::format("idle_governor = \"{}\"\n", governor_name(*profile.idle_governor));
  text += "\nfeatures = [";
  for (const std::string& feature : profile.features.names())
    text += fmt::format("\n  {},", quoted(feature));
  text += "\n]\n\n[cost]\n";
  for (const ProfileCost& cost : profile.costs)
    text += fmt::format("{} = {{value = {}, source = {}}}\n", cost.name, cost.value, quoted(cost.source));
  for (std::size_t i = 0; i < profile.cstates.size(); ++i) {
    const CState& state = profile.cstates[i];
    const auto duration = [](std::uint64_t ns) {
      return quoted(format_duration(static_cast<std::int64_t>(ns)));
    };
    text += fmt::format("\n[[cstate]]\nname = {}\nlatency = {}\nresidency = {}\nwake = {}\nsource = {}\n",
                        quoted(state.name), duration(state.latency_ns), duration(state.residency_ns),
                        duration(state.wake_ns), quoted(profile.cstate_sources.at(i)));
  }
  return text;
}

}  // namespace svmsim::model
