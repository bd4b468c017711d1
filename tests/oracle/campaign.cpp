#include "tests/oracle/campaign.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "svm/user_error.hpp"

namespace svmsim::oracle {

Processor usual_processor(EmulatorKind kind) {
  const auto processor = parse_processor(
      kind == EmulatorKind::qemu
          ? "C 1 10 0 10010001 60fb1 800 f6d8320b fcbfbfd 0 1d843a9 8001020c 0 60fb1 0 75 edd3fbfd 3928 0 0 0"
          : "C 1 8000 0 44f 800f11 10800 76d8320b 178bfbff 0 209c01a9 0 0 800f11 20000000 35c223ff 2fd3fbff "
            "3028 1 0 0");
  return processor.value();
}

Campaign::Campaign(EmulatorSettings settings, std::vector<Waiver>& waivers, unsigned batch, unsigned shown)
    : settings_(std::move(settings)),
      waivers_(waivers),
      batch_(batch),
      shown_(shown),
      processor_(usual_processor(settings_.kind)) {}

bool Campaign::add(Vector vector) {
  if (const std::string_view reason = not_askable(settings_.kind, vector); !reason.empty()) {
    ++tally_.not_asked[std::string(reason)];
    return false;
  }
  switch (run_model(vector, processor_, knobs_of(settings_.kind)).end) {
    case ModelEnd::vmexit:
      break;
    case ModelEnd::halted:
      ++tally_.not_asked["the guest would sleep for ever"];
      return false;
    case ModelEnd::shutdown:
      ++tally_.not_asked["the machine would shut down"];
      return false;
    case ModelEnd::unknown:
      ++tally_.not_asked["GuestCpu does not have this action"];
      return false;
    case ModelEnd::lost:
      throw InternalError("a guest left its program:\n" + describe(vector));
  }
  pending_.push_back(std::move(vector));
  if (pending_.size() >= batch_) flush();
  return true;
}

std::map<std::uint32_t, Result> Campaign::ask(const std::vector<const Vector*>& vectors) {
  std::map<std::uint32_t, Result> results;
  std::vector<const Vector*> left = vectors;
  while (!left.empty()) {
    ++tally_.boots;
    const Boot answer = boot(settings_, left);
    if (!answer.processor) {
      throw UserError(Problem{
          "", 0, "",
          fmt::format("{} did not start the oracle kernel:\n{}", name_of(settings_.kind), answer.words), ""});
    }
    if (!processor_known_) {
      processor_ = *answer.processor;
      processor_known_ = true;
    }
    results.insert(answer.results.begin(), answer.results.end());
    if (answer.end == BootEnd::complete) break;
    // The first one without an answer is the one that it did not survive.
    std::size_t done = 0;
    while (done < left.size() && results.count(left[done]->id) != 0)
      ++done;
    if (done == left.size()) break;
    std::printf("%s %s at vector %u\n%s%s", std::string(name_of(settings_.kind)).c_str(),
                answer.end == BootEnd::timed_out ? "hung" : "died", left[done]->id,
                describe(*left[done]).c_str(), answer.words.c_str());
    std::fflush(stdout);
    if (++lost_ > max_lost) {
      throw UserError(Problem{
          "", 0, "",
          fmt::format("{} did not survive more than {} vectors", name_of(settings_.kind), max_lost), ""});
    }
    left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(done) + 1);
  }
  return results;
}

void Campaign::flush() {
  if (pending_.empty()) return;
  std::vector<const Vector*> vectors;
  for (const Vector& vector : pending_)
    vectors.push_back(&vector);
  const auto results = ask(vectors);
  for (const Vector& vector : pending_) {
    const auto found = results.find(vector.id);
    judge(vector, run_model(vector, processor_, knobs_of(settings_.kind)).result,
          found == results.end() ? nullptr : &found->second);
  }
  pending_.clear();
}

void Campaign::judge(const Vector& vector, const Result& expected, const Result* seen) {
  tally_.count(vector.family, &Tally::asked);
  const std::vector<std::string> differing = seen == nullptr
                                                 ? std::vector<std::string>{"no_answer"}
                                                 : differences(vector, processor_, expected, *seen);
  if (differing.empty()) {
    tally_.count(vector.family, &Tally::agreed);
    return;
  }
  std::set<std::string> tags = tags_of(vector);
  tags.insert("expected:" + outcome_name(expected));
  tags.insert("seen:" + (seen == nullptr ? "no_answer" : outcome_name(*seen)));
  for (Waiver& waiver : waivers_) {
    if (!waiver.applies(name_of(settings_.kind), tags, differing)) continue;
    ++waiver.used;
    tally_.count(vector.family, &Tally::waived);
    return;
  }
  tally_.count(vector.family, &Tally::unexplained);
  ++tally_.unexplained_by[fmt::format("{} [{} -> {}] {}", vector.family, outcome_name(expected),
                                      seen == nullptr ? "no_answer" : outcome_name(*seen),
                                      fmt::join(differing, " "))];
  if (tally_.unexplained > shown_) return;
  std::printf("%s: unexplained disagreement, vector %u\n%s%s\n", std::string(name_of(settings_.kind)).c_str(),
              vector.id, describe(vector).c_str(),
              seen == nullptr ? "  no answer\n" : side_by_side(expected, *seen, differing).c_str());
}

}  // namespace svmsim::oracle
