#include "svm/vmcb_dump/explain.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_dump/suspicion.hpp"

namespace svmsim::svm {

namespace {

std::vector<std::string> because_of(const VmcbImage& image, const std::vector<Field>& inputs) {
  std::vector<std::string> result;
  for (const Field field : inputs) {
    if (!image.has(field)) continue;
    const FieldInfo& info = field_info(field);
    const std::uint64_t value = read_field(image.page, field);
    result.push_back(info.format == DumpFormat::decimal && info.bytes < 8
                         ? fmt::format("{} = {}", info.name, value)
                         : fmt::format("{} = {:#x}", info.name, value));
  }
  return result;
}

void judge_rules(const VmcbImage& image, const ExplainOptions& options, VmcbReport& report) {
  for (const JudgedRule& rule : judge_vmrun(image, options)) {
    const std::string id(rule.id);
    if (rule.judgement.verdict == Verdict::failed) {
      report.violations.push_back({id, std::string(rule.section), std::string(rule.text), "",
                                   because_of(image, vmrun_rule_inputs(rule.id))});
    } else if (rule.judgement.verdict == Verdict::unknown) {
      report.unjudged.push_back({id, std::string(rule.text), rule.judgement.needs});
    }
  }
}

void judge_suspicions(const VmcbImage& image, const ExplainOptions& options, VmcbReport& report) {
  std::vector<std::string> features;
  for (const Suspicion& suspicion : all_suspicions()) {
    if (suspicion.needs_feature && options.features && options.features->has(*suspicion.needs_feature))
      continue;
    const Judgement judgement = judge(image, suspicion.inputs, [&](const Vmcb& vmcb) {
      return suspicion.applies({vmcb, image, options.features});
    });
    if (judgement.verdict == Verdict::unknown) {
      report.unjudged.push_back({std::string(suspicion.id), std::string(suspicion.text), judgement.needs});
    } else if (judgement.verdict == Verdict::failed && suspicion.needs_feature && !options.features) {
      const std::string name(feature_name(*suspicion.needs_feature));
      if (std::find(features.begin(), features.end(), name) == features.end()) features.push_back(name);
    } else if (judgement.verdict == Verdict::failed) {
      report.suspicions.push_back({std::string(suspicion.id), std::string(suspicion.section),
                                   std::string(suspicion.text), std::string(suspicion.reason),
                                   because_of(image, suspicion.inputs)});
    }
  }
  if (!features.empty()) {
    report.unjudged.push_back(
        {"feature_missing",
         fmt::format("the processor has what is enabled here: {}", fmt::join(features, ", ")),
         {"CPUID Fn8000_000A (--features or --profile)"}});
  }
}

/// What the exit code and the rules say about each other.
void compare_with_exit(const VmcbImage& image, VmcbReport& report) {
  if (!image.has(Field::exit_code)) return;
  const std::uint64_t code = image.page.control.exit_code;
  if (code == exit_code::invalid && report.violations.empty()) {
    const bool complete = std::none_of(report.unjudged.begin(), report.unjudged.end(),
                                       [](const Unjudged& item) { return !item.needs.empty(); });
    report.suspicions.insert(
        report.suspicions.begin(),
        {"invalid_without_violation", "15.5.1",
         "the exit code says that VMRUN refused the VMCB, but no rule that can be judged is violated",
         fmt::format(
             "{}the processor may reserve more bits of CR4 or EFER than is assumed, the page may have changed"
             " since, the checks may have seen cached values (clean bits), or the core is faulty",
             complete ? "" : "see what cannot be judged; "),
         because_of(image, {Field::exit_code})});
  } else if (code != exit_code::invalid && !report.violations.empty() &&
             image.kind == ImageKind::kernel_dump) {
    report.suspicions.insert(
        report.suspicions.begin(),
        {"violation_without_invalid", "15.5.1",
         "rules of VMRUN are violated, but the exit code is not INVALID (-1)",
         "the guest has run: the page has changed since, or the processor differs from what is assumed",
         because_of(image, {Field::exit_code})});
  }
}

void add_facts(const VmcbImage& image, VmcbReport& report) {
  const auto fact = [&](const char* name, std::string text) {
    if (!text.empty()) report.facts.emplace_back(name, std::move(text));
  };
  if (image.kind == ImageKind::kernel_dump) {
    fact("lines", fmt::format("{} to {}", image.first_line, image.last_line));
    if (image.dumps > 1) fact("dump", fmt::format("{} of {}", image.dump, image.dumps));
  }
  fact("guest", std::string(guest_type_name(image.guest_type)));
  if (image.vcpu) fact("vCPU", fmt::format("{}", *image.vcpu));
  fact("VMCB address", image.address);
  if (image.last_cpu) fact("last VMRUN on CPU", fmt::format("{}", *image.last_cpu));
  fact("mode", describe_mode(image));
}

void add_assumptions(const ExplainOptions& options, VmcbReport& report) {
  if (!options.features)
    report.assumptions.emplace_back("the processor has every SVM feature that the VMCB uses");
  report.assumptions.push_back(fmt::format("physical addresses have {} bits{}",
                                           options.physical_address_bits.value_or(52),
                                           options.physical_address_bits ? "" : ", the most there can be"));
  const ProcessorLimits limits;
  report.assumptions.push_back(
      fmt::format("reserved bits: CR4 {:#x}, EFER {:#x}; an older processor reserves more",
                  limits.cr4_reserved, limits.efer_reserved));
  report.assumptions.emplace_back("permission maps, page tables and the host's state are as they should be");
}

std::string plural(std::size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace

VmcbReport explain(const VmcbImage& image, const ExplainOptions& options) {
  VmcbReport report;
  report.source = image.source;
  report.kind = image.kind == ImageKind::page ? "VMCB page" : "kernel dump";
  add_facts(image, report);
  add_assumptions(options, report);
  report.exit = decode_exit(image);
  judge_rules(image, options, report);
  const std::size_t unjudged_rules = report.unjudged.size();
  judge_suspicions(image, options, report);
  compare_with_exit(image, report);
  for (const FieldInfo& info : dump_fields()) {
    if (image.lost[index_of(info.field)]) report.lost.emplace_back(info.name);
    if (image.not_printed[index_of(info.field)]) report.not_printed.emplace_back(info.name);
  }
  for (const ImageNote& note : image.notes)
    report.notes.push_back(note.line == 0 ? note.text : fmt::format("line {}: {}", note.line, note.text));
  if (!image.state_is_the_guests && (image.present >> index_of(Field::es_selector)).any())
    report.notes.emplace_back(
        "the guest is an SEV-ES guest: its state is in the VMSA, and the state save area shown here is not "
        "used");
  report.groups = decode_fields(image);

  const bool refused = image.has(Field::exit_code) && image.page.control.exit_code == exit_code::invalid;
  if (!report.violations.empty()) {
    report.verdict = fmt::format("VMRUN refuses this VMCB: {} violated",
                                 plural(report.violations.size(), "rule is", "rules are"));
  } else if (refused) {
    report.verdict = "VMRUN refused this VMCB (exit -1), but no rule that can be judged is violated";
  } else if (unjudged_rules != 0) {
    report.verdict = "no rule that can be judged is violated";
  } else {
    report.verdict = "VMRUN accepts this VMCB";
  }
  if (unjudged_rules != 0)
    report.verdict += fmt::format("; {} cannot be judged", plural(unjudged_rules, "rule", "rules"));
  return report;
}

}  // namespace svmsim::svm
