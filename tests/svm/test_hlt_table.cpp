#include <algorithm>

#include <doctest/doctest.h>

#include "svm/hlt_table.hpp"

using namespace svmsim::svm;

namespace {

bool contains(const HltRow& row, const std::vector<std::size_t>& setting) {
  for (std::size_t i = 0; i < setting.size(); ++i) {
    if (!row.allowed[i][setting[i]]) return false;
  }
  return true;
}

HltOutcomes all(HltOutcome outcome) {
  return {outcome, outcome, outcome};
}

constexpr std::size_t hlt = 0, idle = 1, irr = 2, v_irq = 3, v_tpr = 4, v_nmi = 5, mask = 6, vgif = 7,
                      rflags_if = 8, shadow = 9;

/// Idle HLT alone, nothing pending, IF = 1.
std::vector<std::size_t> idle_setting() {
  return {0, 1, 0, 0, 0, 0, 0, 0, 1, 0};
}

}  // namespace

TEST_CASE("the HLT table agrees with GuestCpu in every setting, and covers each") {
  const HltTable table = make_hlt_table();
  CHECK(table.settings == 2U * 2 * 5 * 2 * 3 * 3 * 2 * 3 * 2 * 2);
  std::vector<std::size_t> setting(hlt_inputs().size(), 0);
  std::size_t settings = 0;
  std::vector<std::size_t> in_row(table.rows.size());
  while (true) {
    const HltOutcomes outcomes = run_hlt(setting);
    std::size_t rows = 0;
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      if (!contains(table.rows[r], setting)) continue;
      ++rows;
      ++in_row[r];
      REQUIRE(table.rows[r].outcomes == outcomes);
    }
    REQUIRE(rows >= 1);
    ++settings;
    std::size_t input = setting.size();
    while (input > 0 && ++setting[input - 1] == hlt_inputs()[input - 1].values.size())
      setting[--input] = 0;
    if (input == 0) break;
  }
  CHECK(settings == table.settings);
  for (std::size_t r = 0; r < table.rows.size(); ++r)
    CHECK(in_row[r] == table.rows[r].settings);
  CHECK(table.rows.size() <= 24);  // legible
}

TEST_CASE("rows that the manual settles") {
  std::vector<std::size_t> setting = idle_setting();
  CHECK(run_hlt(setting) == all(HltOutcome::exit_idle_hlt));
  setting[hlt] = 1;
  CHECK(run_hlt(setting) == all(HltOutcome::exit_hlt));
  setting[v_irq] = 1;
  CHECK(run_hlt(setting) == all(HltOutcome::exit_hlt));
  setting[hlt] = 0;
  CHECK(run_hlt(setting) == all(HltOutcome::halts));
  setting[shadow] = 1;
  CHECK(run_hlt(setting) == all(HltOutcome::halts));
  setting[idle] = 0;
  CHECK(run_hlt(setting) == all(HltOutcome::halts));
}

TEST_CASE("rows in which the readings differ") {
  using O = HltOutcome;
  const auto with = [](std::vector<std::pair<std::size_t, std::size_t>> changes) {
    std::vector<std::size_t> setting = idle_setting();
    for (const auto& [input, value] : changes)
      setting[input] = value;
    return run_hlt(setting);
  };
  const HltOutcomes only_raw{O::halts, O::exit_idle_hlt, O::exit_idle_hlt};
  const HltOutcomes all_but_deliverable{O::halts, O::halts, O::exit_idle_hlt};
  CHECK(with({{v_irq, 1}, {v_tpr, 1}}) == only_raw);
  CHECK(with({{v_irq, 1}, {v_tpr, 2}}) == only_raw);
  CHECK(with({{v_irq, 1}, {rflags_if, 0}}) == all_but_deliverable);
  CHECK(with({{v_irq, 1}, {vgif, 1}}) == all_but_deliverable);
  CHECK(with({{v_irq, 1}, {vgif, 2}}) == all(O::halts));
  CHECK(with({{v_nmi, 2}, {rflags_if, 0}}) == all(O::halts));
  CHECK(with({{v_nmi, 2}, {mask, 1}}) == only_raw);
  CHECK(with({{v_nmi, 2}, {vgif, 1}}) == all_but_deliverable);
  CHECK(with({{v_nmi, 1}}) == all(O::exit_idle_hlt));
  CHECK(with({{irr, 1}}) == all(O::exit_idle_hlt));
  CHECK(with({{irr, 1}, {v_irq, 1}}) == all(O::exit_idle_hlt));  // V_IRQ is ignored under AVIC
  CHECK(with({{irr, 2}}) == only_raw);
  CHECK(with({{irr, 3}}) == only_raw);
  CHECK(with({{irr, 4}}) == all(O::halts));
  CHECK(with({{irr, 4}, {rflags_if, 0}}) == all_but_deliverable);
}

TEST_CASE("the shadow never matters") {
  for (const HltRow& row : make_hlt_table().rows)
    CHECK(std::count(row.allowed[shadow].begin(), row.allowed[shadow].end(), true) == 2);
}
