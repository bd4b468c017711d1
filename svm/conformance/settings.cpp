#include "svm/conformance/settings.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace svmsim::svm::conformance {

namespace {

struct BooleanKnob {
  std::string_view name;
  bool Knobs::*member;
};

constexpr std::array boolean_knobs{
    BooleanKnob{"idle_hlt_counts_avic_irr", &Knobs::idle_hlt_counts_avic_irr},
    BooleanKnob{"shadow_delays_intr_exit", &Knobs::shadow_delays_intr_exit},
    BooleanKnob{"msrpm_at_limit_is_invalid", &Knobs::msrpm_at_limit_is_invalid},
    BooleanKnob{"avic_without_np_is_invalid", &Knobs::avic_without_np_is_invalid},
    BooleanKnob{"host_if_clear_masks_intr_exit", &Knobs::host_if_clear_masks_intr_exit},
    BooleanKnob{"pause_gap_at_threshold_reloads", &Knobs::pause_gap_at_threshold_reloads},
};

struct Choice {
  std::string_view name;
  IdleHltPending value;
};

constexpr std::array idle_hlt_choices{
    Choice{"raw", IdleHltPending::raw},
    Choice{"priority", IdleHltPending::priority},
    Choice{"deliverable", IdleHltPending::deliverable},
};

struct Limit {
  std::string_view name;
  std::uint64_t maximum;
  void (*set)(ProcessorLimits&, std::uint64_t);
};

constexpr std::array limit_table{
    Limit{"physical_address_bits", 52,
          [](ProcessorLimits& l, std::uint64_t v) { l.physical_address_bits = static_cast<unsigned>(v); }},
    Limit{"long_mode", 1, [](ProcessorLimits& l, std::uint64_t v) { l.long_mode = v != 0; }},
    Limit{"host_paging", 1, [](ProcessorLimits& l, std::uint64_t v) { l.host_paging = v != 0; }},
    Limit{"efer_reserved", UINT64_MAX, [](ProcessorLimits& l, std::uint64_t v) { l.efer_reserved = v; }},
    Limit{"cr4_reserved", UINT64_MAX, [](ProcessorLimits& l, std::uint64_t v) { l.cr4_reserved = v; }},
    Limit{"sev", 1, [](ProcessorLimits& l, std::uint64_t v) { l.sev = v != 0; }},
    Limit{"secure_avic", 1, [](ProcessorLimits& l, std::uint64_t v) { l.secure_avic = v != 0; }},
    Limit{"allowed_sev_features", 1,
          [](ProcessorLimits& l, std::uint64_t v) { l.allowed_sev_features = v != 0; }},
    Limit{"smm_lock", 1, [](ProcessorLimits& l, std::uint64_t v) { l.smm_lock = v != 0; }},
    Limit{"max_encrypted_asid", UINT32_MAX,
          [](ProcessorLimits& l, std::uint64_t v) { l.max_encrypted_asid = static_cast<std::uint32_t>(v); }},
};

template <typename Table>
[[nodiscard]] std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table)
    names.emplace_back(row.name);
  return names;
}

template <typename Table>
[[nodiscard]] const typename Table::value_type* find(const Table& table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.name == name; });
  return found != table.end() ? &*found : nullptr;
}

}  // namespace

FeatureSet every_feature() {
  FeatureSet features;
  for (const FeatureInfo& info : all_features())
    features.set(info.feature);
  return features;
}

void read_features(NodeTable& table, FeatureSet& features) {
  const CaseNode* list = table.list("features");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const CaseNode& item = list->items[i];
    const std::string path = fmt::format("{}[{}]", table.path("features"), i);
    const bool on = item.text.compare(0, 1, "+") == 0;
    if (item.kind != CaseNode::Kind::text || (!on && item.text.compare(0, 1, "-") != 0)) {
      table.problems().add(item.line, path, "must be a text such as \"+vnmi\" or \"-nrips\"");
      continue;
    }
    const std::string name = item.text.substr(1);
    if (const auto feature = feature_of(name)) {
      features.set(*feature, on);
    } else if (const auto extension = extension_of(name)) {
      features.set(*extension, on);
    } else {
      std::vector<std::string> names = feature_names();
      for (std::string& one : extension_names())
        names.push_back(std::move(one));
      table.problems().add(item.line, path, fmt::format("\"{}\" is not an SVM feature", name),
                           nearest_name(name, names));
    }
  }
}

namespace {
constexpr std::string_view pending_knob = "idle_hlt_pending";
}  // namespace

bool is_knob(std::string_view name) {
  return name == pending_knob || find(boolean_knobs, name) != nullptr;
}

void set_knob(Knobs& knobs, const std::string& name, const CaseNode& value, const std::string& path,
              TomlProblems& problems) {
  if (const BooleanKnob* knob = find(boolean_knobs, name)) {
    if (const auto number = number_of(value, path, 1, problems)) knobs.*(knob->member) = *number != 0;
  } else if (name == pending_knob) {
    if (const Choice* choice = find(idle_hlt_choices, value.text)) {
      knobs.idle_hlt_pending = choice->value;
    } else {
      problems.add(value.line, path, "must be raw, priority or deliverable",
                   nearest_name(value.text, names_of(idle_hlt_choices)));
    }
  } else {
    std::vector<std::string> names = names_of(boolean_knobs);
    names.emplace_back(pending_knob);
    problems.add(value.line, path, "is not a knob", nearest_name(name, names));
  }
}

void set_limit(ProcessorLimits& limits, const std::string& name, const CaseNode& value,
               const std::string& path, TomlProblems& problems) {
  const Limit* limit = find(limit_table, name);
  if (limit == nullptr) {
    problems.add(value.line, path, "is not a limit of a processor",
                 nearest_name(name, names_of(limit_table)));
  } else if (const auto number = number_of(value, path, limit->maximum, problems)) {
    limit->set(limits, *number);
  }
}

void read_knobs(NodeTable& table, Knobs& knobs) {
  const CaseNode* node = table.table("knobs");
  if (node == nullptr) return;
  for (const auto& [name, value] : node->entries)
    set_knob(knobs, name, value, table.path("knobs." + name), table.problems());
}

void read_limits(NodeTable& table, ProcessorLimits& limits) {
  const CaseNode* node = table.table("limits");
  if (node == nullptr) return;
  for (const auto& [name, value] : node->entries)
    set_limit(limits, name, value, table.path("limits." + name), table.problems());
}

}  // namespace svmsim::svm::conformance
