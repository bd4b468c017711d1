#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "model/stats/busy_reason.hpp"
#include "model/stats/run_result.hpp"

namespace svmsim::model {

namespace {

using Json = nlohmann::ordered_json;

/// ns of a mean, to the picosecond; more digits would be noise of the conversion.
double mean_ns(double cycles, std::uint64_t tsc_hz) {
  return std::round(cycles * 1e9 / static_cast<double>(tsc_hz) * 1000.0) / 1000.0;
}

Json counter_json(const ExitCounter& counter, std::uint64_t tsc_hz) {
  const auto ns = [tsc_hz](std::uint64_t cycles) { return cycles_to_ns(cycles, tsc_hz); };
  const std::uint64_t others =
      ns(counter.polling) + ns(counter.blocked) + ns(counter.runqueue) + ns(counter.cstate);
  const std::uint64_t time = ns(counter.time);
  const bool any = counter.count != 0;
  Json row;
  row["count"] = counter.count;
  row["time_ns"] = time;
  row["min_ns"] = any ? ns(counter.min) : 0;
  row["max_ns"] = ns(counter.max);
  row["mean_ns"] =
      any ? mean_ns(static_cast<double>(counter.time) / static_cast<double>(counter.count), tsc_hz) : 0.0;
  // The remainder, so that the parts add up to the time in spite of rounding.
  row["handling_ns"] = time > others ? time - others : 0;
  row["polling_ns"] = ns(counter.polling);
  row["blocked_ns"] = ns(counter.blocked);
  row["runqueue_ns"] = ns(counter.runqueue);
  row["cstate_ns"] = ns(counter.cstate);
  row["error_pct"] = any ? std::round(counter.error_pct() * 100.0) / 100.0 : 0.0;
  return row;
}

Json exits_json(const std::vector<ExitStats::Row>& rows, std::uint64_t tsc_hz) {
  Json result = Json::object();
  for (const auto& [code, counter] : rows)
    result[exit_row_name(code)] = counter_json(counter, tsc_hz);
  return result;
}

Json stats_json(const VcpuStats& stats) {
  Json result = Json::object();
  for (const VcpuStatInfo& info : vcpu_stat_table()) {
    if (info.counter != nullptr) {
      result[std::string(info.name)] = stats.*info.counter;
    } else {
      result[std::string(info.name)] = (stats.*info.histogram).count;
    }
  }
  return result;
}

Json nested_json(const std::vector<NestedStats::Row>& rows) {
  Json result = Json::object();
  for (const auto& [code, exits] : rows) {
    result[exit_row_name(code)] = {
        {"l1", exits.l1}, {"l2", exits.l2}, {"reflected", exits.reflected}, {"seen_by_l1", exits.seen_by_l1}};
  }
  return result;
}

Json latency_json(const LatencyStats& latency, std::uint64_t tsc_hz) {
  Json result;
  result["count"] = latency.count();
  result["mean_ns"] = mean_ns(latency.mean(), tsc_hz);
  result["p50_ns"] = cycles_to_ns(latency.percentile(500), tsc_hz);
  result["p99_ns"] = cycles_to_ns(latency.percentile(990), tsc_hz);
  result["max_ns"] = cycles_to_ns(latency.max(), tsc_hz);
  return result;
}

Json pcpu_json(const PcpuResult& pcpu, std::uint64_t tsc_hz) {
  Json result;
  result["pcpu"] = pcpu.pcpu;
  result["guest_ns"] = cycles_to_ns(pcpu.guest_cycles, tsc_hz);
  result["host_ns"] = cycles_to_ns(pcpu.host_cycles, tsc_hz);
  result["poll_ns"] = cycles_to_ns(pcpu.poll_cycles, tsc_hz);
  result["task_ns"] = cycles_to_ns(pcpu.task_cycles, tsc_hz);
  result["idle_ns"] = Json::object();
  for (const auto& [state, cycles] : pcpu.idle_cycles)
    result["idle_ns"][state] = cycles_to_ns(cycles, tsc_hz);
  result["context_switches"] = pcpu.context_switches;
  result["timer_interrupts"] = pcpu.timer_interrupts;
  return result;
}

/// Counts are integers in the JSON although metrics are doubles.
Json metric_json(double value) {
  if (std::floor(value) == value && std::fabs(value) < 9007199254740992.0)
    return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace

std::vector<ExitStats::Row> total_exits(const RunResult& result) {
  std::map<std::size_t, ExitStats::Row> by_slot;
  for (const VcpuResult& vcpu : result.vcpus) {
    for (const ExitStats::Row& row : vcpu.exits) {
      ExitStats::Row& total = by_slot[ExitStats::slot_of(row.code)];
      total.code = row.code;
      total.counter += row.counter;
    }
  }
  std::vector<ExitStats::Row> rows;
  rows.reserve(by_slot.size());
  for (const auto& [slot, row] : by_slot)
    rows.push_back(row);
  return rows;
}

std::string to_json(const RunResult& result) {
  Json json;
  json["schema"] = 1;
  json["version"] = result.version;
  json["scenario"] = result.scenario_json.empty() ? Json::object() : Json::parse(result.scenario_json);
  json["sim_time_ns"] = cycles_to_ns(result.sim_cycles, result.tsc_hz);
  json["wall_time_s"] = result.wall_time_s;
  json["exits"] = exits_json(total_exits(result), result.tsc_hz);
  json["halt"] = counter_json(halt_split(total_exits(result)), result.tsc_hz);
  json["busy_reason"] = result.busy_reason;
  json["vcpus"] = Json::array();
  for (const VcpuResult& vcpu : result.vcpus) {
    Json entry;
    entry["vm"] = vcpu.vm;
    entry["vcpu"] = vcpu.vcpu;
    entry["exits"] = exits_json(vcpu.exits, result.tsc_hz);
    entry["halt"] = counter_json(halt_split(vcpu.exits), result.tsc_hz);
    entry["stats"] = stats_json(vcpu.stats);
    if (!vcpu.nested.empty()) entry["nested"] = nested_json(vcpu.nested);
    json["vcpus"].push_back(std::move(entry));
  }
  json["pcpus"] = Json::array();
  for (const PcpuResult& pcpu : result.pcpus)
    json["pcpus"].push_back(pcpu_json(pcpu, result.tsc_hz));
  json["latency"]["wakeup"] = latency_json(result.wakeup_latency, result.tsc_hz);
  json["latency"]["ipi"] = latency_json(result.ipi_latency, result.tsc_hz);
  json["tasks"] = Json::array();
  for (const TaskResult& task : result.tasks) {
    json["tasks"].push_back({{"name", task.name},
                             {"tid", task.tid},
                             {"run_ns", cycles_to_ns(task.run_cycles, result.tsc_hz)},
                             {"loops", task.loops},
                             {"wakeup", latency_json(task.wakeup_latency, result.tsc_hz)}});
  }
  json["migrations"] = result.migrations;
  json["apicv_inhibits"] = Json::array();
  for (const ApicvInhibit& inhibit : result.apicv_inhibits) {
    json["apicv_inhibits"].push_back({{"vm", inhibit.vm},
                                      {"reason", inhibit.reason},
                                      {"count", inhibit.count},
                                      {"time_ns", cycles_to_ns(inhibit.time_cycles, result.tsc_hz)}});
  }
  json["advice"] = Json::array();
  for (const Advice& advice : result.advice) {
    json["advice"].push_back({{"id", advice.id}, {"text", advice.text}, {"setting", advice.setting}});
  }
  json["workload"]["kind"] = result.workload_kind;
  json["workload"]["metrics"] = Json::object();
  for (const auto& [name, value] : result.metrics)
    json["workload"]["metrics"][name] = metric_json(value);
  if (!result.failure.empty()) json["workload"]["failure"] = result.failure;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace svmsim::model
