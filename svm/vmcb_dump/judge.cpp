#include "svm/vmcb_dump/judge.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/table_environment.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmrun_checks.hpp"

namespace svmsim::svm {

namespace {

/// More combinations than this are not tried.
constexpr std::size_t most_combinations = 2048;

/// Values that rules tell apart and that are neither one bit nor all bits but one.
std::vector<std::uint64_t> special_values(Field field) {
  const auto event = [](std::uint32_t type, std::uint8_t vector = 0) {
    return std::uint64_t{event_inj::event(type, vector)};
  };
  switch (field) {
    case Field::event_inj: {
      using namespace event_inj;
      return {event(1, 0x20),
              event(type_exception, exception_vector::nmi),
              event(type_exception, exception_vector::breakpoint),
              event(type_exception, exception_vector::overflow),
              event(type_exception, exception_vector::page_fault),
              event(type_soft, 0x80),
              event(type_intr, 0x20),
              event(type_intr),
              event(type_nmi),
              event(type_nmi) | 1U << 12};
    }
    case Field::exit_int_info:
      return {event(1), event(event_inj::type_exception)};
    case Field::cr0:
      return {cr0::pg | cr0::pe | cr0::wp, cr0::pg | cr0::pe};
    case Field::efer:
      return {efer::svme | efer::lme | efer::lma};
    case Field::rflags:
      return {rflags::always_one | rflags::interrupt};
    case Field::g_pat:
      return {0x0007'0406'0007'0406};
    case Field::tlb_ctl:
      return {3, 7};
    case Field::exit_code:
      return {exit_code::hlt,
              exit_code::shutdown,
              exit_code::avic_incomplete_ipi,
              exit_code::avic_noaccel,
              exit_code::invalid,
              0x300,
              0xf000'0001};
    case Field::es_attrib:
    case Field::cs_attrib:
    case Field::ss_attrib:
    case Field::ds_attrib:
    case Field::fs_attrib:
    case Field::gs_attrib:
    case Field::ldtr_attrib:
    case Field::tr_attrib:
      return {3, 0x8b, 0x93, 0xf3, 0x29b};
    case Field::pause_filter_count:
    case Field::pause_filter_thresh:
    case Field::cpl:
      return {3};
    case Field::avic_physical_id:
      return {0x10'00ff, 0x10'01ff};
    case Field::exit_info_2:
      return {std::uint64_t{3} << 32};
    default:
      return {};
  }
}

/// Values of a field between which every rule that reads it can tell.
std::vector<std::uint64_t> candidates(Field field) {
  std::vector<std::uint64_t> values = special_values(field);
  constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  values.push_back(0);
  values.push_back(all);
  for (std::size_t bit = 0; bit < std::min<std::size_t>(64, 8 * field_info(field).bytes); ++bit) {
    values.push_back(std::uint64_t{1} << bit);
    values.push_back(all ^ std::uint64_t{1} << bit);
  }
  return values;
}

std::string shown(Field field) {
  if (field == Field::intercepts_3) return "intercept word 3";
  if (field == Field::intercepts_4) return "intercept word 4";
  if (field == Field::intercepts_5) return "intercept word 5";
  return std::string(field_info(field).name);
}

bool known(const VmcbImage& image, Field field) {
  const bool state = field_info(field).offset >= sizeof(VmcbControl);
  return image.has(field) && (!state || image.state_is_the_guests);
}

}  // namespace

Judgement judge(const VmcbImage& image, const std::vector<Field>& inputs,
                const std::function<bool(const Vmcb&)>& fails) {
  std::vector<Field> missing;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(missing),
               [&](Field field) { return !known(image, field); });
  const auto verdict_of = [&](const Vmcb& vmcb) { return fails(vmcb) ? Verdict::failed : Verdict::passed; };
  if (missing.empty()) return {verdict_of(image.page), {}};

  Judgement unknown{Verdict::unknown, {}};
  bool guest_state = false;
  for (const Field field : missing) {
    if (!image.state_is_the_guests && field_info(field).offset >= sizeof(VmcbControl)) {
      guest_state = true;
    } else {
      unknown.needs.push_back(shown(field));
    }
  }
  if (guest_state) unknown.needs.emplace_back("the guest's encrypted state (VMSA)");

  std::vector<std::vector<std::uint64_t>> values;
  std::size_t combinations = 1;
  for (const Field field : missing) {
    values.push_back(candidates(field));
    for (const Field other : inputs) {  // rules compare fields with each other
      const std::uint64_t value = read_field(image.page, other);
      if (known(image, other)) values.back().insert(values.back().end(), {value, value + 1, value - 1});
    }
    combinations *= values.back().size();
    if (combinations > most_combinations) return unknown;
  }
  std::optional<Verdict> first;
  for (std::size_t number = 0; number < combinations; ++number) {
    Vmcb vmcb = image.page;
    std::size_t rest = number;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      write_field(vmcb, missing[i], values[i][rest % values[i].size()]);
      rest /= values[i].size();
    }
    const Verdict verdict = verdict_of(vmcb);
    if (!first) first = verdict;
    if (*first != verdict) return unknown;
  }
  return {*first, {}};
}

namespace {

struct RuleInputs {
  std::string_view id;
  std::vector<Field> inputs;
};

/// A rule that is not here is judged only where nothing is missing.
const std::vector<RuleInputs>& rule_inputs() {
  using F = Field;
  static const std::vector<RuleInputs> table{
      {"svme_clear", {F::efer}},
      {"cache_bits", {F::cr0}},
      {"cr0_upper", {F::cr0}},
      {"cr3_reserved", {F::cr3}},
      {"cr4_reserved", {F::cr4}},
      {"dr6_upper", {F::dr6}},
      {"dr7_upper", {F::dr7}},
      {"efer_reserved", {F::efer}},
      {"no_long_mode", {F::efer}},
      {"long_mode_without_pae", {F::efer, F::cr0, F::cr4}},
      {"long_mode_without_pe", {F::efer, F::cr0}},
      {"code_segment_l_and_d", {F::efer, F::cr0, F::cr4, F::cs_attrib}},
      {"vmrun_not_intercepted", {F::intercepts_4}},
      {"asid_zero", {F::asid}},
      {"msrpm_beyond_memory", {F::msrpm_base_pa}},
      {"iopm_beyond_memory", {F::iopm_base_pa}},
      {"v_nmi_without_nmi_intercept", {F::int_ctl, F::intercepts_3}},
      {"s_cet_reserved", {F::s_cet}},
      {"cet_without_wp", {F::cr4, F::cr0}},
      {"injects_reserved_type", {F::event_inj}},
      {"injects_no_exception", {F::event_inj}},
      {"injects_impossible_exception", {F::event_inj, F::efer, F::cr0, F::cs_attrib}},
      {"injects_soft_without_nrips", {F::event_inj}},
      {"sev_es_injection", {F::event_inj, F::nested_ctl}},
      {"np_without_host_paging", {F::nested_ctl}},
      {"nested_cr3_reserved", {F::nested_ctl, F::nested_cr3}},
      {"g_pat_illegal", {F::nested_ctl, F::g_pat}},
      {"x2avic_without_avic", {F::int_ctl}},
      {"avic_max_index", {F::int_ctl, F::avic_physical_id}},
      {"x2avic_max_index", {F::int_ctl, F::avic_physical_id}},
      {"avic_backing_page_beyond_memory", {F::int_ctl, F::avic_backing_page}},
      {"avic_physical_table_beyond_memory", {F::int_ctl, F::avic_physical_id}},
      {"avic_logical_table_beyond_memory", {F::int_ctl, F::avic_logical_id}},
      {"avic_without_np", {F::int_ctl, F::nested_ctl}},
      {"sev_without_np", {F::nested_ctl}},
      {"sev_without_smm_lock", {F::nested_ctl}},
      {"sev_asid", {F::nested_ctl, F::asid}},
      {"pdpte_reserved", {F::cr0, F::cr4, F::efer, F::nested_ctl}},
      {"cet_in_virtual_8086_mode", {F::cr4, F::rflags}},
      {"sev_es_vmsa_beyond_memory", {F::nested_ctl, F::vmsa_pa}},
      {"sev_es_vmsa_damaged", {F::nested_ctl}},
      {"sev_features_not_allowed", {F::nested_ctl, F::allowed_sev_features, F::guest_sev_features}},
      {"secure_avic_with_avic", {F::nested_ctl, F::int_ctl, F::guest_sev_features}},
      {"secure_avic_with_injection", {F::nested_ctl, F::guest_sev_features}},
      {"snp_avic_with_injection", {F::nested_ctl, F::int_ctl, F::guest_sev_features}},
      {"snp_avic_backing_page_owner", {F::nested_ctl, F::int_ctl, F::guest_sev_features}},
  };
  return table;
}

/// What lies outside of a VMCB, for VMRUN's rules.
class Surroundings final : public TableEnvironment {
 public:
  bool illegal_pdptes = false;
  std::uint64_t u_cet = 0;
  Vmsa guest_vmsa;
  bool owned = true;

  std::optional<std::array<std::uint64_t, 4>> page_directory_pointers(std::uint64_t) override {
    if (!illegal_pdptes) return std::nullopt;
    return std::array<std::uint64_t, 4>{~std::uint64_t{0}, 0, 0, 0};
  }
  MsrAccess read_msr(std::uint32_t) override { return {false, u_cet}; }
  Vmsa vmsa(std::uint64_t) override { return guest_vmsa; }
  bool hypervisor_owned(std::uint64_t) override { return owned; }
};

/// A processor, a host and a guest's memory, as far as nobody knows them.
struct Machine {
  FeatureSet features;
  ProcessorLimits limits;
  bool illegal_pdptes = false;
  std::uint64_t u_cet = 0;
  bool vmsa_damaged = false;
  bool backing_page_owned = true;
  std::optional<std::uint64_t> sev_features;  ///< nothing: those that the last #VMEXIT stored
};

/// The rules that fail on a machine.
std::vector<RuleViolation> failed_rules(const Vmcb& vmcb, Machine machine, const Knobs& knobs,
                                        Surroundings& surroundings) {
  constexpr std::uint64_t sev_bits = nested_ctl::sev_enable | nested_ctl::sev_es_enable;
  machine.limits.sev = (vmcb.control.nested_ctl & sev_bits) != 0;
  surroundings.illegal_pdptes = machine.illegal_pdptes;
  surroundings.u_cet = machine.u_cet;
  surroundings.owned = machine.backing_page_owned;
  surroundings.guest_vmsa = {machine.vmsa_damaged ? VmsaLoad::damaged : VmsaLoad::loaded,
                             machine.sev_features.value_or(vmcb.control.guest_sev_features)};
  return vmrun_violations(vmcb, machine.features, knobs, machine.limits, &surroundings);
}

bool contains(const std::vector<RuleViolation>& rules, std::string_view id) noexcept {
  return std::any_of(rules.begin(), rules.end(), [id](const RuleViolation& rule) { return rule.id == id; });
}

/// What no VMCB tells, and a machine on which it is otherwise than usual.
struct Unknown {
  std::string needs;
  Machine machine;
};

FeatureSet every_feature() {
  FeatureSet features;
  for (const FeatureInfo& info : all_features())
    features.set(info.feature);
  return features;
}

Machine usual_machine(const VmcbImage& image, const ExplainOptions& options) {
  Machine machine;
  machine.features = options.features ? *options.features : every_feature();
  if (options.physical_address_bits) machine.limits.physical_address_bits = *options.physical_address_bits;
  machine.limits.max_encrypted_asid = std::numeric_limits<std::uint32_t>::max();
  // A VMCB that uses them shows that the processor has them.
  machine.limits.secure_avic = true;
  machine.limits.allowed_sev_features = true;
  machine.sev_features = image.vmsa_sev_features;
  return machine;
}

std::vector<Unknown> unknowns(const Machine& usual, const VmcbImage& image, const ExplainOptions& options) {
  std::vector<Unknown> result;
  const auto add = [&](std::string needs) -> Machine& {
    result.push_back({std::move(needs), usual});
    return result.back().machine;
  };
  if (!options.features) {
    // Without any other feature, bits of the VMCB are ignored and fewer rules fail.
    for (const Feature feature : {Feature::nrips, Feature::x2avic_ext})
      add(fmt::format("CPUID: whether the processor has {}", feature_name(feature)))
          .features.set(feature, false);
  }
  // No processor with SVM has fewer than 40 bits.
  if (!options.physical_address_bits)
    add("the width of physical addresses (CPUID Fn8000_0008)").limits.physical_address_bits = 40;
  add("the host's CR0.PG").limits.host_paging = false;
  add("the host's HWCR.SmmLock").limits.smm_lock = false;
  add("the highest encrypted ASID (CPUID Fn8000_001F)").limits.max_encrypted_asid = 0;
  add("the guest's page-directory pointers").illegal_pdptes = true;
  add("the guest's U_CET").u_cet = 1;
  add("the checksum of the VMSA").vmsa_damaged = true;
  add("the owner of the AVIC backing page (RMP)").backing_page_owned = false;
  if (!usual.sev_features &&
      (!image.has(Field::guest_sev_features) || image.page.control.guest_sev_features == 0))
    add("SEV_FEATURES of the VMSA").sev_features = ~std::uint64_t{0};
  return result;
}

const std::vector<Field>& every_field() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> result;
    for (const FieldInfo& info : dump_fields())
      result.push_back(info.field);
    return result;
  }();
  return fields;
}

}  // namespace

const std::vector<Field>& vmrun_rule_inputs(std::string_view id) {
  static const std::vector<Field> none;
  for (const RuleInputs& entry : rule_inputs()) {
    if (entry.id == id) return entry.inputs;
  }
  return none;
}

std::vector<JudgedRule> judge_vmrun(const VmcbImage& image, const ExplainOptions& options) {
  const Machine usual = usual_machine(image, options);
  const std::vector<Unknown> variants = unknowns(usual, image, options);
  Surroundings surroundings;
  // Rules whose inputs are all known need no more than this.
  const auto failed_on = [&](const Vmcb& vmcb, const Machine& machine) {
    return failed_rules(vmcb, machine, options.knobs, surroundings);
  };
  const std::vector<RuleViolation> failed = failed_on(image.page, usual);
  std::vector<std::vector<RuleViolation>> variant_failed;
  for (const Unknown& variant : variants)
    variant_failed.push_back(failed_on(image.page, variant.machine));

  std::vector<JudgedRule> result;
  for (const RuleViolation& rule : vmrun_rules()) {
    const std::string_view id = rule.id;
    const std::vector<Field>& own = vmrun_rule_inputs(id);
    const std::vector<Field>& inputs = own.empty() ? every_field() : own;
    const bool complete =
        std::all_of(inputs.begin(), inputs.end(), [&](Field field) { return known(image, field); });
    const auto judge_on = [&](const Machine& machine, const std::vector<RuleViolation>& failed_there) {
      if (complete) return Judgement{contains(failed_there, id) ? Verdict::failed : Verdict::passed, {}};
      return judge(image, inputs, [&](const Vmcb& vmcb) { return contains(failed_on(vmcb, machine), id); });
    };
    JudgedRule judged{rule.section, id, rule.text, judge_on(usual, failed)};
    if (judged.judgement.verdict == Verdict::passed) {
      for (std::size_t i = 0; i < variants.size(); ++i) {
        if (judge_on(variants[i].machine, variant_failed[i]).verdict == Verdict::passed) continue;
        judged.judgement.verdict = Verdict::unknown;
        judged.judgement.needs.push_back(variants[i].needs);
      }
    }
    result.push_back(std::move(judged));
  }
  return result;
}

}  // namespace svmsim::svm
