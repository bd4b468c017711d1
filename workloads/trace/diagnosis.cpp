#include "workloads/trace/diagnosis.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/trace/diagnosis_tally.hpp"
#include "workloads/trace/payload_names.hpp"
#include "workloads/trace/report_builder.hpp"

namespace svmsim::workloads {

namespace {

using Json = nlohmann::ordered_json;

Json spans_json(const DiagnosisFacts::Spans& spans) {
  return {{"count", spans.count}, {"total", spans.total}, {"max", spans.most}};
}

Json halts_json(const DiagnosisFacts::Halts& halts) {
  return {{"all", spans_json(halts.all)},       {"pending", spans_json(halts.pending)},
          {"polled", spans_json(halts.polled)}, {"waited", spans_json(halts.waited)},
          {"invalid", halts.invalid},           {"failed_polls", halts.failed_polls},
          {"wasted_ns", halts.wasted_ns},       {"window_unknown", halts.window_unknown},
          {"short_waits", halts.short_waits}};
}

Json windows_json(const DiagnosisFacts::Windows& windows) {
  Json changes = Json::array();
  for (const DiagnosisFacts::Window& one : windows.changes) {
    changes.push_back({{"line", one.line},
                       {"time", one.time},
                       {"grow", one.grow},
                       {"now_ns", one.now_ns},
                       {"before_ns", one.before_ns}});
  }
  Json json{{"changes", std::move(changes)}, {"grows", windows.grows},    {"shrinks", windows.shrinks},
            {"turns", windows.turns},        {"max_ns", windows.most_ns}, {"now_ns", nullptr}};
  if (windows.now_ns) json["now_ns"] = *windows.now_ns;
  return json;
}

Json repeat_json(const DiagnosisFacts::Repeat& repeat, const TraceNames& names) {
  if (repeat.count == 0) return nullptr;
  return {{"exit", names.exit_name(repeat.code)},
          {"rip", fmt::format("0x{:x}", repeat.rip)},
          {"address", fmt::format("0x{:x}", repeat.address)},
          {"count", repeat.count},
          {"first_line", repeat.first_line},
          {"last_line", repeat.last_line},
          {"time", repeat.last_time - std::min(repeat.first_time, repeat.last_time)},
          {"reinjections", repeat.reinjections},
          {"vector", repeat.vector},
          {"returns_known", repeat.returns_known}};
}

Json vcpu_json(const DiagnosisFacts::Vcpu& vcpu, const TraceNames& names) {
  Json exits = Json::object();
  for (const DiagnosisFacts::ExitSum& sum : vcpu.sums) {
    exits[names.exit_name(sum.code)] = {{"exits", sum.exits},
                                        {"samples", sum.spans.count},
                                        {"total", sum.spans.total},
                                        {"max", sum.spans.most}};
  }
  Json msrs = Json::object();
  for (const auto& [msr, count] : vcpu.msrs)
    msrs[fmt::format("0x{:x}", msr)] = count;
  return {{"vm", vcpu.vm},
          {"vcpu", vcpu.vcpu},
          {"time", vcpu.last_time - vcpu.first_time},
          {"entries", vcpu.entries},
          {"exits", vcpu.exits},
          {"guest_time", vcpu.guest_time},
          {"by_exit", std::move(exits)},
          {"halts", halts_json(vcpu.halts)},
          {"windows", windows_json(vcpu.windows)},
          {"repeat", repeat_json(vcpu.repeat, names)},
          {"deadline_writes", vcpu.deadline_writes},
          {"tmict_writes", vcpu.tmict_writes},
          {"icr_writes", vcpu.icr_writes},
          {"eoi_writes", vcpu.eoi_writes},
          {"tpr_writes", vcpu.tpr_writes},
          {"max_exits_per_ms", vcpu.most_exits_per_ms},
          {"msrs", std::move(msrs)}};
}

Json interrupts_json(const DiagnosisFacts& facts) {
  Json rows = Json::array();
  for (const DiagnosisFacts::Injection& one : facts.injections) {
    Json row{{"line", one.line},
             {"vm", one.vm},
             {"vcpu", one.vcpu},
             {"vector", one.vector},
             {"cause", cause_name(one.cause.kind)},
             {"sender", one.cause.sender},
             {"accept_line", one.cause.accept_line},
             {"source_line", one.cause.source_line},
             {"closed_loop", one.cause.closed_loop},
             {"latency", nullptr}};
    if (one.latency) row["latency"] = *one.latency;
    rows.push_back(std::move(row));
  }
  Json causes = Json::object();
  for (const auto& [name, one] : facts.causes)
    causes[name] = {{"count", one.count}, {"latency", spans_json(one.known)}};
  return {{"injections", std::move(rows)}, {"causes", std::move(causes)}};
}

Json apicv_json(const DiagnosisFacts& facts) {
  Json reasons = Json::object();
  for (const auto& [bit, count] : facts.inhibit_reasons) {
    const std::string_view name = apicv_inhibit_name(bit);
    reasons[name.empty() ? fmt::format("bit {}", bit) : std::string{name}] = count;
  }
  Json at_end = nullptr;
  if (facts.inhibits) {
    at_end = Json::array();
    for (unsigned bit = 0; bit < apicv_inhibit_count; ++bit) {
      if ((*facts.inhibits >> bit & 1U) != 0) at_end.push_back(apicv_inhibit_name(bit));
    }
  }
  return {{"accepted", facts.accepted},
          {"accepted_apicv", facts.accepted_apicv},
          {"inhibits_set", facts.inhibits_set},
          {"inhibits_cleared", facts.inhibits_cleared},
          {"inhibit_reasons", std::move(reasons)},
          {"inhibits_at_end", std::move(at_end)},
          {"x2apic_msrs", facts.x2apic_msrs},
          {"hyperv_msrs", facts.hyperv_msrs},
          {"pic_lines", facts.pic_lines},
          {"nested", facts.nested},
          {"pit_thread", facts.pit_thread}};
}

Json userspace_json(const DiagnosisFacts& facts) {
  Json json = Json::object();
  for (const auto& [key, count] : facts.userspace) {
    const std::string_view name = userspace_exit_name(key.first);
    std::string text = name.empty() ? fmt::format("reason {}", key.first) : std::string{name};
    if (key.second != 0) text = fmt::format("errno {}", key.second);
    json[text] = count;
  }
  return json;
}

/// A report and the facts of each capture, as they stream by.
class DiagnosisSink final : public TraceSink {
 public:
  DiagnosisSink(std::string source, int chosen, std::optional<Isa> isa)
      : source_(std::move(source)), chosen_(chosen) {
    options_.isa = isa;
  }

  void begin_capture(std::string_view title, std::uint64_t first_line, const TraceNames& names) override {
    builder_ = std::make_unique<ReportBuilder>(source_, options_);
    builder_->begin_capture(title, first_line, names);
    tally_ = std::make_unique<DiagnosisTally>();
    names_ = &names;
    empty_ = true;
    first_line_ = first_line;
    title_ = title;
  }
  void event(const ReadEvent& event) override {
    builder_->event(event);
    tally_->event(event);
    empty_ = false;
  }
  void table(const StatTable& table) override {
    builder_->table(table);
    empty_ = false;
  }
  void note(const ReadNote& note) override {
    builder_->note(note);
    if (note.kind == NoteKind::unreadable || note.kind == NoteKind::unrecognised) noted_ = true;
  }
  void end_capture(std::string_view format, std::uint64_t line_count) override {
    builder_->end_capture(format, line_count);
    builder_->end_file(line_count);
    const DiagnosisFacts facts = tally_->finish();
    const bool nothing = empty_ && title_.empty() && !noted_;
    noted_ = false;
    if (nothing) return;
    ++number_;
    if (chosen_ != 0 && chosen_ != number_) return;
    Json one{{"number", number_},
             {"title", title_},
             {"first_line", first_line_},
             {"report", Json::parse(to_json(builder_->take()))}};
    Json vcpus = Json::array();
    for (const DiagnosisFacts::Vcpu& vcpu : facts.vcpus)
      vcpus.push_back(vcpu_json(vcpu, *names_));
    one["facts"] = {{"vcpus", std::move(vcpus)},
                    {"interrupts", interrupts_json(facts)},
                    {"apicv", apicv_json(facts)},
                    {"userspace", userspace_json(facts)},
                    {"markers", facts.markers}};
    captures_.push_back(std::move(one));
  }
  [[nodiscard]] bool wants_text(std::string_view event_name) const override {
    return CauseTracker::wants_text(event_name);
  }
  void end_file(std::uint64_t) override {}

  [[nodiscard]] std::string json() {
    if (chosen_ > number_) {
      throw TraceError(Problem{source_, 0, "capture",
                               fmt::format("there is no capture {}; the file holds {}", chosen_, number_),
                               number_ == 0 ? "" : std::to_string(number_)});
    }
    const Json json{{"source", printable(source_, 4096)}, {"captures", std::move(captures_)}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace);
  }

 private:
  std::string source_;
  ImportOptions options_;
  int chosen_;
  int number_ = 0;
  bool empty_ = true;
  bool noted_ = false;
  std::uint64_t first_line_ = 0;
  std::string title_;
  const TraceNames* names_ = nullptr;
  std::unique_ptr<ReportBuilder> builder_;
  std::unique_ptr<DiagnosisTally> tally_;
  Json captures_ = Json::array();
};

}  // namespace

std::string diagnosis_json(const std::vector<std::string>& paths, int capture, const std::string& isa,
                           const ReadOptions& reading) {
  const std::optional<Isa> numbers = isa_of_name(isa);
  if (!isa.empty() && !numbers) throw UserError(Problem{"", 0, "--isa", "must be svm or vmx", "svm"});
  DiagnosisSink sink(paths.empty() ? std::string{} : paths.front(), capture, numbers);
  open_traces(paths, reading)->read(sink);
  return sink.json();
}

}  // namespace svmsim::workloads
