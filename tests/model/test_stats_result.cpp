#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "model/stats/perf_table.hpp"
#include "model/stats/run_result.hpp"

using namespace svmsim::model;
namespace exit_code = svmsim::svm::exit_code;

namespace {

/// A thread that takes `count` exits of a reason, each `cycles` long but the last, which is `last` long.
void take(ExitStats& stats, std::uint64_t code, unsigned count, std::uint64_t cycles, std::uint64_t last) {
  for (unsigned i = 1; i <= count; ++i) {
    stats.exit(code, 0);
    stats.entry(i == count ? last : cycles);
  }
}

RunResult small_result() {
  RunResult result;
  result.version = "1.2.3";
  result.scenario_json = R"({"host": {"pcpus": 1}})";
  result.tsc_hz = 3000000000;
  result.sim_cycles = 3000000001;
  result.wall_time_s = 0.25;
  VcpuResult vcpu;
  vcpu.vm = "vm0";
  ExitStats stats;
  stats.entry(0);
  stats.exit(exit_code::hlt, 0);
  stats.add_polling(1000);
  stats.add_blocked(1000);
  stats.entry(4001);
  vcpu.exits = stats.rows();
  vcpu.stats.halt_exits = 1;
  vcpu.stats.halt_wait_hist.add(0);
  result.vcpus.push_back(vcpu);
  vcpu.vcpu = 1;
  result.vcpus.push_back(vcpu);
  PcpuResult pcpu;
  pcpu.guest_cycles = 3;
  pcpu.idle_cycles = {{"C1", 6}};
  result.pcpus.push_back(pcpu);
  result.wakeup_latency.record(3000);
  result.workload_kind = "cpuid";
  result.metrics = {{"iterations", 10.0}, {"cycles_per_iteration", 1.5}};
  return result;
}

}  // namespace

TEST_CASE("perf table: the layout of a recorded perf kvm stat report") {
  // Numbers of the lab's recording of the self-IPI guest on 6.12; 1 cycle = 1 ns.
  RunResult result;
  VcpuResult vcpu;
  ExitStats stats;
  stats.entry(0);
  take(stats, exit_code::hlt, 3, 2180, 2230);
  take(stats, exit_code::vintr, 3, 3220, 3280);
  take(stats, exit_code::msr, 6, 4050, 20230);
  take(stats, 0x1234, 1, 0, 1000);
  vcpu.exits = stats.rows();
  result.vcpus.push_back(vcpu);
  CHECK(perf_table(result, PerfLayout::classic) ==
        "\n"
        "\n"
        "Analyze events for all VMs, all VCPUs:\n"
        "\n"
        "             VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg time \n"
        "\n"
        "                 msr          6    46.15%    70.05%      4.05us     20.23us      6.75us ( +-  "
        "39.97% )\n"
        "               vintr          3    23.08%    16.82%      3.22us      3.28us      3.24us ( +-   "
        "0.62% )\n"
        "                 hlt          3    23.08%    11.40%      2.18us      2.23us      2.20us ( +-   "
        "0.76% )\n"
        "             UNKNOWN          1     7.69%     1.73%      1.00us      1.00us      1.00us ( +-   "
        "0.00% )\n"
        "\n"
        "Total Samples:13, Total events handled time:57.79us.\n"
        "\n");
}

TEST_CASE("perf table: a wide name column, and no exits at all") {
  const std::string text = perf_table(RunResult{});
  CHECK(text.find(std::string(33, ' ') + "VM-EXIT    Samples") != std::string::npos);
  CHECK(text.find("Total Samples:0, Total events handled time:0.00us.") != std::string::npos);
}

TEST_CASE("result JSON: the keys of schema 1, totals over vCPUs, rounding half up") {
  const auto json = nlohmann::ordered_json::parse(to_json(small_result()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items())
    keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"schema", "version", "scenario", "sim_time_ns", "wall_time_s",
                                         "exits", "halt", "busy_reason", "vcpus", "pcpus", "latency", "tasks",
                                         "migrations", "apicv_inhibits", "advice", "workload"});
  CHECK(json["schema"] == 1);
  CHECK(json["scenario"]["host"]["pcpus"] == 1);
  CHECK(json["sim_time_ns"] == 1000000000);  // 1000000000.33
  const auto& total = json["exits"]["hlt"];
  CHECK(total["count"] == 2);
  CHECK(total["time_ns"] == 2667);  // 8002 / 3 = 2667.33
  CHECK(total["min_ns"] == 1334);   // 1333.67
  CHECK(total["mean_ns"] == doctest::Approx(1333.667));
  CHECK(total["polling_ns"] == 667);
  CHECK(total["blocked_ns"] == 667);
  CHECK(total["handling_ns"] == 2667 - 2 * 667);
  CHECK(total["runqueue_ns"] == 0);
  CHECK(total["cstate_ns"] == 0);
  REQUIRE(json["vcpus"].size() == 2);
  CHECK(json["vcpus"][1]["vcpu"] == 1);
  CHECK(json["vcpus"][1]["vm"] == "vm0");
  CHECK(json["vcpus"][1]["exits"]["hlt"]["count"] == 1);
  CHECK(json["vcpus"][0]["stats"]["halt_exits"] == 1);
  CHECK(json["vcpus"][0]["stats"]["halt_wait_hist"].size() == 32);
  CHECK(json["vcpus"][0]["stats"]["halt_wait_hist"][0] == 1);
  CHECK(json["pcpus"][0]["guest_ns"] == 1);
  CHECK(json["pcpus"][0]["idle_ns"]["C1"] == 2);
  CHECK(json["latency"]["wakeup"]["count"] == 1);
  CHECK(json["latency"]["wakeup"]["max_ns"] == 1000);
  CHECK(json["latency"]["ipi"]["count"] == 0);
  CHECK(json["apicv_inhibits"].empty());
  CHECK(json["advice"].empty());
  CHECK(json["workload"]["kind"] == "cpuid");
  CHECK(json["workload"]["metrics"]["iterations"].is_number_integer());
  CHECK(json["workload"]["metrics"]["cycles_per_iteration"] == 1.5);
  CHECK_FALSE(json["workload"].contains("failure"));
}

TEST_CASE("result JSON: a workload that ended early says why, advice and inhibits are listed") {
  RunResult result = small_result();
  result.failure = "interrupt did not arrive in iteration 3";
  result.advice.push_back({"a", "b", "c"});
  result.apicv_inhibits.push_back({"vm0", "irqwin", 3, 30});
  const auto json = nlohmann::ordered_json::parse(to_json(result));
  CHECK(json["workload"]["failure"] == "interrupt did not arrive in iteration 3");
  CHECK(json["advice"][0]["setting"] == "c");
  CHECK(json["apicv_inhibits"][0]["time_ns"] == 10);
}
