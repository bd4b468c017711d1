// Differential testing of svm::GuestCpu: the same vectors through GuestCpu and through an emulator.
// docs/oracle.md.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "svm/user_error.hpp"
#include "tests/oracle/campaign.hpp"
#include "tests/oracle/generator.hpp"

namespace svmsim::oracle {
namespace {

struct Options {
  EmulatorKind emulator = EmulatorKind::qemu;
  std::uint64_t vectors = 20000;
  std::uint64_t seed = 1;
  std::uint64_t only = ~std::uint64_t{0};
  std::uint64_t shown = 10;
  std::string kernel = SVMSIM_ORACLE_KERNEL;
  std::string waivers = SVMSIM_ORACLE_WAIVERS;
  std::string work;
  std::string json;
  std::string markdown;
};

constexpr const char* usage =
    "usage: svmsim_oracle --emulator qemu|bochs [--vectors N] [--seed S] [--only ID] [--show N]\n"
    "                     [--kernel FILE] [--waivers FILE] [--work DIRECTORY] [--json FILE] [--markdown "
    "FILE]\n";

Options read_options(const std::vector<std::string>& arguments) {
  Options options;
  const auto wrong = [](const std::string& message) {
    throw UserError(Problem{"", 0, "", message + "\n" + usage, ""});
  };
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& key = arguments[i];
    if (i + 1 == arguments.size()) wrong(fmt::format("{} needs a value", key));
    const std::string& value = arguments[i + 1];
    const auto number = [&] {
      std::size_t used = 0;
      std::uint64_t result = 0;
      try {
        result = std::stoull(value, &used, 0);
      } catch (const std::exception&) {
        used = 0;
      }
      if (used == 0 || used != value.size()) wrong(fmt::format("{}: '{}' is no number", key, value));
      return result;
    };
    if (key == "--emulator") {
      if (value != "qemu" && value != "bochs") wrong("--emulator is qemu or bochs");
      options.emulator = value == "qemu" ? EmulatorKind::qemu : EmulatorKind::bochs;
    } else if (key == "--vectors") {
      options.vectors = number();
    } else if (key == "--seed") {
      options.seed = number();
    } else if (key == "--only") {
      options.only = number();
    } else if (key == "--show") {
      options.shown = number();
    } else if (key == "--kernel") {
      options.kernel = value;
    } else if (key == "--waivers") {
      options.waivers = value;
    } else if (key == "--work") {
      options.work = value;
    } else if (key == "--json") {
      options.json = value;
    } else if (key == "--markdown") {
      options.markdown = value;
    } else {
      wrong(fmt::format("unknown option {}", key));
    }
  }
  return options;
}

/// A directory that goes when the run ends, unless the user named one.
class WorkDirectory {
 public:
  explicit WorkDirectory(const std::string& named) : path(named), temporary_(named.empty()) {
    if (temporary_) {
      std::string pattern = (std::filesystem::temp_directory_path() / "svmsim-oracle-XXXXXX").string();
      if (mkdtemp(pattern.data()) == nullptr)
        throw UserError(Problem{"", 0, "", "no temporary directory", ""});
      path = pattern;
    } else {
      std::filesystem::create_directories(path);
    }
  }
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;
  ~WorkDirectory() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove_all(path, ignored);
  }
  std::string path;

 private:
  bool temporary_;
};

constexpr std::uint32_t first_random_id = 0x10000000;

/// The systematic vectors, or as many of them as fit evenly spread into four fifths of the run, then random
/// ones.
void generate(const Options& options, Campaign& campaign) {
  std::uint64_t systematic = 0;
  generate_systematic([&systematic](Vector&&) { ++systematic; });
  const std::uint64_t quota = std::min(systematic, options.vectors * 4 / 5);
  std::uint64_t number = 0;
  std::uint64_t taken = 0;
  generate_systematic([&](Vector&& vector) {
    vector.id = static_cast<std::uint32_t>(number);
    const bool chosen = (number + 1) * quota / systematic > number * quota / systematic;
    ++number;
    if (options.only != ~std::uint64_t{0} ? options.only == vector.id : chosen)
      taken += campaign.add(std::move(vector)) ? 1U : 0U;
  });
  if (options.only != ~std::uint64_t{0}) {
    if (options.only >= first_random_id && options.only < 2 * std::uint64_t{first_random_id}) {
      Vector vector = random_vector(options.seed, options.only - first_random_id);
      vector.id = static_cast<std::uint32_t>(options.only);
      campaign.add(std::move(vector));
    }
    return;
  }
  for (std::uint64_t index = 0; taken < options.vectors; ++index) {
    Vector vector = random_vector(options.seed, index);
    vector.id = static_cast<std::uint32_t>(first_random_id + index);
    taken += campaign.add(std::move(vector)) ? 1U : 0U;
  }
}

nlohmann::ordered_json report(const Options& options, const Tally& tally, const std::vector<Waiver>& waivers,
                              std::uint64_t open_idle_states) {
  nlohmann::ordered_json json;
  json["emulator"] = name_of(options.emulator);
  json["seed"] = options.seed;
  json["vectors"] = tally.asked;
  json["agreed"] = tally.agreed;
  json["waived"] = tally.waived;
  json["unexplained"] = tally.unexplained;
  json["boots"] = tally.boots;
  json["idle_hlt_states_where_the_readings_differ"] = open_idle_states;
  for (const auto& [family, counts] : tally.families) {
    json["families"][family] = {{"vectors", counts.asked},
                                {"agreed", counts.agreed},
                                {"waived", counts.waived},
                                {"unexplained", counts.unexplained}};
  }
  for (const Waiver& waiver : waivers) {
    if (waiver.emulator == name_of(options.emulator))
      json["waivers"].push_back(
          {{"id", waiver.id}, {"used", waiver.used}, {"section", waiver.section}, {"reason", waiver.reason}});
  }
  for (const auto& [reason, count] : tally.not_asked)
    json["not_asked"][reason] = count;
  return json;
}

void print(const Options& options, const Tally& tally, const std::vector<Waiver>& waivers,
           std::uint64_t open_idle_states) {
  fmt::print("{}: {} vectors in {} boots: {} agree, {} waived, {} unexplained\n", name_of(options.emulator),
             tally.asked, tally.boots, tally.agreed, tally.waived, tally.unexplained);
  for (const auto& [family, counts] : tally.families)
    fmt::print("  {:<12} {:>7} vectors {:>7} agree {:>6} waived {:>6} unexplained\n", family, counts.asked,
               counts.agreed, counts.waived, counts.unexplained);
  for (const Waiver& waiver : waivers) {
    if (waiver.emulator == name_of(options.emulator) && waiver.used != 0)
      fmt::print("  waiver {:<40} {:>7}\n", waiver.id, waiver.used);
  }
  for (const Waiver& waiver : waivers) {
    if (waiver.emulator == name_of(options.emulator) && waiver.used == 0)
      fmt::print("  waiver {} never applied\n", waiver.id);
  }
  for (const auto& [reason, count] : tally.not_asked)
    fmt::print("  not asked: {} ({})\n", reason, count);
  fmt::print("  idle HLT: {} states in which the readings of the manual differ, not judged\n",
             open_idle_states);
  for (const auto& [what, count] : tally.unexplained_by)
    fmt::print("  unexplained: {:>6} {}\n", count, what);
}

/// The tables of docs/oracle-results.md.
std::string markdown(const Options& options, const Tally& tally, const std::vector<Waiver>& waivers,
                     std::uint64_t open_idle_states) {
  const bool qemu = options.emulator == EmulatorKind::qemu;
  std::string text = fmt::format("## {}\n\nSeed {}, {} boots.\n\n", qemu ? "QEMU (TCG)" : "Bochs",
                                 options.seed, tally.boots);
  text += "| family | vectors | agree | waived | unexplained |\n|---|---:|---:|---:|---:|\n";
  for (const auto& [family, counts] : tally.families)
    text += fmt::format("| {} | {} | {} | {} | {} |\n", family, counts.asked, counts.agreed, counts.waived,
                        counts.unexplained);
  text += fmt::format("| **all** | **{}** | **{}** | **{}** | **{}** |\n\n", tally.asked, tally.agreed,
                      tally.waived, tally.unexplained);
  text +=
      fmt::format("In {} of the idle-HLT states the readings of the manual differ; they are not judged.\n\n",
                  open_idle_states);
  text += "| not put to this emulator because | vectors |\n|---|---:|\n";
  for (const auto& [reason, count] : tally.not_asked)
    text += fmt::format("| {} | {} |\n", reason, count);
  text += "\n| disagreement | vectors | what the emulator does | manual |\n|---|---:|---|---|\n";
  for (const Waiver& waiver : waivers) {
    if (waiver.emulator == name_of(options.emulator))
      text += fmt::format("| {} | {} | {} | {} |\n", waiver.id, waiver.used, waiver.reason, waiver.section);
  }
  return text;
}

int run(const Options& options) {
  std::vector<Waiver> waivers = read_waivers(options.waivers);
  const WorkDirectory work(options.work);
  EmulatorSettings settings;
  settings.kind = options.emulator;
  settings.kernel = options.kernel;
  settings.work_directory = work.path;
  const unsigned batch = options.emulator == EmulatorKind::qemu ? 10000 : 8000;
  Campaign campaign(settings, waivers, batch, static_cast<unsigned>(options.shown));
  generate(options, campaign);
  campaign.flush();
  const std::uint64_t open = options.only == ~std::uint64_t{0} ? compose_idle_hlt(campaign) : 0;
  print(options, campaign.tally(), waivers, open);
  if (!options.json.empty())
    std::ofstream(options.json) << report(options, campaign.tally(), waivers, open).dump(2) << '\n';
  if (!options.markdown.empty())
    std::ofstream(options.markdown) << markdown(options, campaign.tally(), waivers, open);
  return campaign.tally().unexplained == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svmsim::oracle

int main(int argc, char** argv) {
  try {
    return svmsim::oracle::run(svmsim::oracle::read_options({argv + 1, argv + argc}));
  } catch (const svmsim::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "svmsim_oracle: %s\n", error.what());
    return 3;
  }
}
