#include "svm/hlt_table.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/table_environment.hpp"
#include "svm/user_error.hpp"

namespace svmsim::svm {

namespace {

/// Order of hlt_inputs().
enum Input : std::size_t {
  hlt,
  idle_hlt,
  irr,
  v_irq,
  v_tpr,
  v_nmi,
  v_nmi_mask,
  vgif,
  rflags_if,
  shadow,
  count
};

constexpr std::uint8_t priority = 8;  ///< class of V_IRQ, and of the backing page's PPR

Vmcb vmcb_of(const std::vector<std::size_t>& setting) {
  Vmcb vmcb{};
  VmcbControl& control = vmcb.control;
  for (const Intercept intercept : {Intercept::vmrun, Intercept::nmi, Intercept::shutdown})
    set_intercept(control, intercept, true);
  set_intercept(control, Intercept::hlt, setting[hlt] != 0);
  set_intercept(control, Intercept::idle_hlt, setting[idle_hlt] != 0);
  control.asid = 1;
  control.nested_ctl = nested_ctl::np_enable;
  control.nested_cr3 = 0x4000;
  control.avic_backing_page = 0x5000;
  control.avic_logical_id = 0x6000;
  control.avic_physical_id = 0x7000;
  control.int_vector = 0x81;
  std::uint32_t word = int_ctl::v_intr_masking;
  if (setting[irr] != 0) word |= int_ctl::avic_enable;
  if (setting[v_irq] != 0) word |= int_ctl::v_irq;
  word = int_ctl::with_v_intr_prio(word, priority);
  word = int_ctl::with_v_tpr(word, static_cast<std::uint8_t>(priority - 1 + setting[v_tpr]));
  if (setting[v_nmi] != 0) word |= int_ctl::v_nmi_enable;
  if (setting[v_nmi] == 2) word |= int_ctl::v_nmi;
  if (setting[v_nmi_mask] != 0) word |= int_ctl::v_nmi_mask;
  if (setting[vgif] != 0) word |= int_ctl::v_gif_enable;
  if (setting[vgif] == 2) word |= int_ctl::v_gif;
  control.int_ctl = word;
  control.int_state = setting[shadow] != 0 ? int_state::interrupt_shadow : 0;

  VmcbSave& save = vmcb.save;
  save.efer = efer::svme | efer::lme | efer::lma;
  save.cr0 = cr0::pg | cr0::pe | cr0::wp;
  save.cr4 = cr4::pae;
  save.dr6 = 0xffff'0ff0;
  save.dr7 = 0x400;
  save.rflags = rflags::always_one | (setting[rflags_if] != 0 ? rflags::interrupt : 0);
  save.rip = 0x10'0000;
  save.g_pat = 0x0007'0406'0007'0406;
  save.cs.selector = 8;
  save.cs.attrib = 0x029b;
  save.gdtr.base = 0x8000;
  save.idtr.base = 0x9000;
  save.idtr.limit = 0xfff;
  return vmcb;
}

FeatureSet every_feature() {
  FeatureSet features;
  for (const FeatureInfo& info : all_features())
    features.set(info.feature);
  return features;
}

HltOutcome run(const std::vector<std::size_t>& setting, IdleHltPending reading) {
  Knobs knobs;
  knobs.idle_hlt_pending = reading;
  GuestCpu cpu(every_feature(), knobs);
  TableEnvironment environment;
  environment.ppr = priority << 4;
  // Classes of the highest IRR bit: none, below, at and above the PPR's.
  constexpr std::array<int, 5> highest{-1, -1, 0x71, 0x85, 0x91};
  environment.highest_irr = highest[setting[irr]];
  Vmcb vmcb = vmcb_of(setting);
  if (cpu.vmrun(vmcb, true, environment).kind != StepKind::entered)
    throw InternalError("the VMCB of the HLT table does not enter the guest");
  GuestAction action;
  action.kind = ActionKind::hlt;
  action.rip = cpu.rip();
  action.length = 1;
  const Step step = cpu.execute(action, environment);
  if (step.kind == StepKind::halted) return HltOutcome::halts;
  if (step.kind == StepKind::vmexit && vmcb.control.exit_code == exit_code::hlt) return HltOutcome::exit_hlt;
  if (step.kind == StepKind::vmexit && vmcb.control.exit_code == exit_code::idle_hlt)
    return HltOutcome::exit_idle_hlt;
  throw InternalError("HLT neither exits nor halts");
}

/// A set of settings: for each input, which values are in it.
using Box = std::vector<std::vector<bool>>;

/// Merges settings into rows. A row is widened, one input after the other, as far as all settings in it have
/// the same outcomes; then as few of these rows are taken as cover all settings. Rows may overlap, and agree
/// where they do.
class Merger {
 public:
  Merger() {
    std::vector<std::size_t> setting(Input::count, 0);
    do
      outcomes_.push_back(run_hlt(setting));
    while (next(setting));
  }

  [[nodiscard]] std::size_t settings() const noexcept { return outcomes_.size(); }

  std::vector<HltRow> rows() {
    const std::vector<Box> boxes = candidates();
    std::vector<HltRow> rows;
    std::vector<bool> covered(outcomes_.size());
    while (true) {
      const Box* best = nullptr;
      std::size_t most = 0;
      for (const Box& box : boxes) {
        std::size_t fresh = 0;
        for_each(box, [&](std::size_t number) { fresh += covered[number] ? 0U : 1U; });
        if (fresh > most) {
          most = fresh;
          best = &box;
        }
      }
      if (best == nullptr) break;
      HltRow row{*best, {}, 0};
      for_each(*best, [&](std::size_t number) {
        covered[number] = true;
        row.outcomes = outcomes_[number];
        ++row.settings;
      });
      rows.push_back(std::move(row));
    }
    std::sort(rows.begin(), rows.end(),
              [](const HltRow& a, const HltRow& b) { return a.allowed > b.allowed; });
    return rows;
  }

 private:
  static std::size_t values_of(std::size_t input) { return hlt_inputs()[input].values.size(); }

  /// The next setting in the order of their numbers; false after the last.
  static bool next(std::vector<std::size_t>& setting) {
    for (std::size_t input = Input::count; input-- > 0;) {
      if (++setting[input] < values_of(input)) return true;
      setting[input] = 0;
    }
    return false;
  }

  /// Calls with the number of each setting in a box.
  template <class Call>
  static void for_each(const Box& box, Call call, std::size_t input = 0, std::size_t number = 0) {
    if (input == Input::count) {
      call(number);
      return;
    }
    for (std::size_t value = 0; value < box[input].size(); ++value) {
      if (box[input][value]) for_each(box, call, input + 1, number * values_of(input) + value);
    }
  }

  [[nodiscard]] bool one_outcome(const Box& box) const {
    const HltOutcomes* first = nullptr;
    bool same = true;
    for_each(box, [&](std::size_t number) {
      if (first == nullptr) first = &outcomes_[number];
      same = same && outcomes_[number] == *first;
    });
    return same;
  }

  [[nodiscard]] Box widened(const std::vector<std::size_t>& setting, std::size_t first_input) const {
    Box box;
    for (std::size_t input = 0; input < Input::count; ++input) {
      box.emplace_back(values_of(input));
      box.back()[setting[input]] = true;
    }
    for (std::size_t i = 0; i < Input::count; ++i) {
      const std::size_t input = (first_input + i) % Input::count;
      for (std::size_t value = 0; value < values_of(input); ++value) {
        // "AVIC off" beside some states of AVIC's IRR would be hard to read: that step is made as a whole.
        if (box[input][value] || (input == Input::irr && (value == 0 || box[input][0]))) continue;
        Box wider = box;
        wider[input][value] = true;
        if (one_outcome(wider)) box = std::move(wider);
      }
      Box widest = box;
      widest[input].assign(values_of(input), true);
      if (one_outcome(widest)) box = std::move(widest);
    }
    return box;
  }

  /// Widened boxes that together cover everything.
  [[nodiscard]] std::vector<Box> candidates() const {
    std::set<Box> boxes;
    std::vector<bool> covered(outcomes_.size());
    std::vector<std::size_t> setting(Input::count, 0);
    std::size_t number = 0;
    do {
      if (!covered[number]) {
        for (std::size_t first = 0; first < Input::count; ++first) {
          const Box box = widened(setting, first);
          if (first == 0) for_each(box, [&](std::size_t inside) { covered[inside] = true; });
          boxes.insert(box);
        }
      }
      ++number;
    } while (next(setting));
    return {boxes.begin(), boxes.end()};
  }

  std::vector<HltOutcomes> outcomes_;  ///< by number of the setting
};

}  // namespace

std::string_view hlt_outcome_text(HltOutcome outcome) noexcept {
  constexpr std::array<std::string_view, 3> texts{"78h", "A6h", "halts"};
  return texts[static_cast<std::size_t>(outcome)];
}

std::string_view hlt_reading_name(IdleHltPending reading) noexcept {
  constexpr std::array<std::string_view, 3> names{"raw", "priority", "deliverable"};
  return names[static_cast<std::size_t>(reading)];
}

const std::vector<HltInput>& hlt_inputs() {
  static const std::vector<HltInput> inputs{
      {"HLT", {"0", "1"}, "HLT intercept, word 3 bit 24"},
      {"IDLE_HLT", {"0", "1"}, "idle-HLT intercept, word 5 bit 6"},
      {"AVIC IRR",
       {"off", "empty", "below", "at", "above"},
       "AVIC off; or the class of the highest IRR bit against the class of PPR"},
      {"V_IRQ", {"0", "1"}, "pending virtual interrupt, int_ctl bit 8"},
      {"V_TPR", {"below", "at", "above"}, "V_TPR against V_INTR_PRIO, V_IGN_TPR 0"},
      {"V_NMI", {"off", "0", "1"}, "V_NMI_ENABLE 0; or V_NMI, int_ctl bit 11"},
      {"V_NMI_MASK", {"0", "1"}, "int_ctl bit 12"},
      {"VGIF", {"off", "0", "1"}, "V_GIF_ENABLE 0; or V_GIF, int_ctl bit 9"},
      {"IF", {"0", "1"}, "RFLAGS.IF of the guest"},
      {"shadow", {"0", "1"}, "interrupt shadow at HLT, as after STI"},
  };
  return inputs;
}

HltOutcomes run_hlt(const std::vector<std::size_t>& setting) {
  HltOutcomes outcomes{};
  for (std::size_t i = 0; i < hlt_readings.size(); ++i)
    outcomes[i] = run(setting, hlt_readings[i]);
  return outcomes;
}

HltTable make_hlt_table() {
  Merger merger;
  return {merger.rows(), merger.settings()};
}

std::string to_json(const HltTable& table) {
  using Json = nlohmann::ordered_json;
  Json result;
  result["inputs"] = Json::array();
  for (const HltInput& input : hlt_inputs())
    result["inputs"].push_back({{"name", input.name}, {"values", input.values}, {"meaning", input.meaning}});
  result["readings"] = Json::array();
  for (const IdleHltPending reading : hlt_readings)
    result["readings"].push_back(hlt_reading_name(reading));
  result["settings"] = table.settings;
  result["rows"] = Json::array();
  for (const HltRow& row : table.rows) {
    Json when = Json::object();
    for (std::size_t i = 0; i < hlt_inputs().size(); ++i) {
      Json values = Json::array();
      for (std::size_t value = 0; value < row.allowed[i].size(); ++value) {
        if (row.allowed[i][value]) values.push_back(hlt_inputs()[i].values[value]);
      }
      when[hlt_inputs()[i].name] = std::move(values);
    }
    Json entry{{"when", std::move(when)}};
    for (std::size_t i = 0; i < hlt_readings.size(); ++i)
      entry[std::string(hlt_reading_name(hlt_readings[i]))] = hlt_outcome_text(row.outcomes[i]);
    entry["differ"] = row.readings_differ();
    entry["settings"] = row.settings;
    result["rows"].push_back(std::move(entry));
  }
  return result.dump(2);
}

}  // namespace svmsim::svm
