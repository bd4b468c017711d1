// Calibration on tables and microbenchmark figures that simulations with known costs have made: what it calls
// identified is right, and it names everything else.

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "model/calibration/calibration.hpp"
#include "model/calibration/least_squares.hpp"
#include "model/config/parameters.hpp"
#include "model/stats/perf_table.hpp"
#include "tests/model/config_fixture.hpp"
#include "tests/model/model_fixture.hpp"

namespace svmsim::model::calibration {

namespace {

using model::test::metric;
using model::test::scenario_of;
using model::testing::TempDir;

const std::vector<std::string> benchmarks{
    "cpuid",       "vmcall",        "wr_tsc_adjust_msr", "inl_from_qemu",    "inl_from_kernel",
    "wbinvd",      "toggle_cr0_wp", "tscdeadline_immed", "self_ipi_sti_nop", "self_ipi_sti_hlt",
    "self_ipi_tpr"};

/// A host whose costs are the profile's times factors from 0.6 to 1.7. Each depends on the seed and its own
/// name alone.
Costs random_host(unsigned seed) {
  Costs costs = builtin_profile("turin").cost;
  for (const auto& binding : cost_parameters()) {
    const std::string name = binding.declaration.key();
    std::seed_seq seeds(name.begin(), name.end());
    std::mt19937 random(seeds);
    random.discard(seed);
    const auto value = std::get<std::int64_t>(*binding.get(costs));
    const auto tenths = static_cast<std::int64_t>(random() % 12);
    if (binding.declaration.unit == "cycles")
      binding.set(costs, SettingValue(std::max(binding.declaration.minimum, value * (6 + tenths) / 10)));
  }
  return costs;
}

RunResult run_on(const Costs& host, const std::string& program, const std::string& goal, bool recorded) {
  std::vector<std::string> overrides{"host.hz=0", "vm.workload.goal=" + goal};
  if (recorded)
    overrides.emplace_back(R"(host.tracepoints=["kvm_entry","kvm_exit","kvm_mmio","kvm_pio","kvm_msr"])");
  Scenario scenario = scenario_of(program, overrides);
  scenario.host.cost = host;
  Simulation simulation(std::move(scenario));
  return simulation.run();
}

std::string vmexit_output(const Costs& host, const std::vector<std::string>& programs) {
  std::string text = "enabling apic\npaging enabled\ncr0 = 80010011\n";
  for (const std::string& program : programs)
    text += fmt::format("{} {:.0f}\n", program,
                        metric(run_on(host, program, "2000000", false), "cycles_per_iteration"));
  return text + "PASS vmexit\n";
}

/// The layout of perf 6.4 and later.
std::string perf_table_ns(const Costs& host, const std::string& program) {
  const RunResult result = run_on(host, program, "10000000", true);
  std::string text =
      "Event name                Samples   Sample%    Time (ns)     Time%   Max Time (ns)   Min Time (ns)  "
      "Mean Time (ns)\n";
  for (const auto& [code, counter] : total_exits(result)) {
    const auto ns = [&result](std::uint64_t cycles) {
      return 1e9 * static_cast<double>(cycles) / static_cast<double>(result.tsc_hz);
    };
    text += fmt::format("{}  {}  50.00%  {:.0f}  50.00%  {:.0f}  {:.0f}  {:.0f}\n", exit_row_name(code),
                        counter.count, ns(counter.time), ns(counter.max), ns(counter.min),
                        ns(counter.time) / static_cast<double>(counter.count));
  }
  return text;
}

std::map<std::string, double> values_of(const Costs& costs) {
  std::map<std::string, double> values;
  for (const auto& binding : cost_parameters())
    values[binding.declaration.key()] = static_cast<double>(std::get<std::int64_t>(*binding.get(costs)));
  return values;
}

const FittedCost& cost_of(const Calibration& result, const std::string& name) {
  for (const FittedCost& cost : result.costs) {
    if (cost.name == name) return cost;
  }
  FAIL("no cost " << name);
  return result.costs.front();
}

/// Costs with a finding, by name, in order of declaration.
std::string names_of(const Calibration& result, Finding finding) {
  std::string names;
  for (const FittedCost& cost : result.costs) {
    if (cost.finding == finding) names += (names.empty() ? "" : " ") + cost.name;
  }
  return names;
}

Request request_of(std::vector<std::string> inputs) {
  Request request;
  request.profile = "turin";
  request.inputs = std::move(inputs);
  request.events = perf_kvm_stat_events();
  return request;
}

std::string refusal_of(const Request& request) {
  try {
    (void)calibrate(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool near(double value, double truth) {
  return std::abs(value - truth) <= std::max(0.02 * truth, 0.5);
}

}  // namespace

TEST_CASE("calibration recovers what it calls identified, and names the rest") {
  std::string identified;
  for (const unsigned seed : {1U, 2U}) {
    CAPTURE(seed);
    const Costs host = random_host(seed);
    const auto truth = values_of(host);
    const TempDir directory;
    std::vector<std::string> inputs{directory.write("vmexit.txt", vmexit_output(host, benchmarks))};
    for (const std::string program : {"cpuid", "wr_tsc_adjust_msr", "self_ipi_sti_nop", "self_ipi_sti_hlt"})
      inputs.push_back(program + ":" + directory.write(program + ".txt", perf_table_ns(host, program)));
    const Calibration result = calibrate(request_of(inputs));
    for (const FittedCost& cost : result.costs) {
      CAPTURE(cost.name);
      CAPTURE(cost.value);
      CAPTURE(truth.at(cost.name));
      if (cost.finding == Finding::identified)
        CHECK(near(static_cast<double>(cost.value), truth.at(cost.name)));
      if (cost.finding == Finding::assumed) CHECK(cost.value == cost.before);
    }
    // A table and a microbenchmark of the same exits tell these; everything else comes in sums.
    for (const char* name : {"t_world", "t_trace", "t_user_exit"})
      CHECK(cost_of(result, name).finding == Finding::identified);
    // No exit tells its handler from the run loop, which therefore stays turin's unless that would leave less
    // than nothing for a handler.
    const bool kept = cost_of(result, "t_loop").convention;
    CHECK(cost_of(result, "t_loop").finding == (kept ? Finding::assumed : Finding::sum));
    CHECK(cost_of(result, "h_cpuid").finding == (kept ? Finding::given : Finding::sum));
    CHECK(cost_of(result, "u_avic_icr").finding == Finding::assumed);
    // Every sum that was measured is right, too.
    CHECK(result.sums.size() >= 5);
    for (const MeasuredSum& sum : result.sums) {
      CAPTURE(terms_text(sum.terms));
      double cycles = 0.0;
      for (const auto& [name, factor] : sum.terms)
        cycles += factor * truth.at(name);
      CHECK(sum.cycles == doctest::Approx(cycles).epsilon(0.02));
    }
    for (const ComparedMeasurement& one : result.measurements) {
      CAPTURE(one.measurement.name);
      CHECK(one.predicted == doctest::Approx(one.measurement.cycles).epsilon(0.01));
    }
    // What can be identified depends on the measurements, not on the numbers in them.
    if (identified.empty()) identified = names_of(result, Finding::identified);
    CHECK(names_of(result, Finding::identified) == identified);
  }
}

TEST_CASE("with the conventional costs known, calibration finds the handlers") {
  for (const unsigned seed : {11U}) {
    CAPTURE(seed);
    const Costs host = random_host(seed);
    const auto truth = values_of(host);
    const TempDir directory;
    Request request = request_of({directory.write("vmexit.txt", vmexit_output(host, benchmarks))});
    for (const char* name : {"t_world", "t_loop", "t_fastpath_loop", "t_iret", "t_insn"})
      request.keep.push_back(fmt::format("{}={:.0f}", name, truth.at(name)));
    const Calibration result = calibrate(request);
    for (const char* name : {"h_cpuid", "h_vmmcall", "h_msr", "t_user_exit", "h_io_kernel", "h_insn"}) {
      CAPTURE(name);
      CHECK(cost_of(result, name).finding == Finding::identified);
      CHECK(near(static_cast<double>(cost_of(result, name).value), truth.at(name)));
    }
    CHECK(cost_of(result, "t_world").kept);
  }
}

TEST_CASE("a table alone gives handlers beside the profile's conventional costs") {
  Costs host = builtin_profile("turin").cost;
  host.h_cpuid = 163;
  const TempDir directory;
  const Calibration result =
      calibrate(request_of({directory.write("perf.txt", perf_table_ns(host, "cpuid"))}));
  const FittedCost& cost = cost_of(result, "h_cpuid");
  CHECK(cost.finding == Finding::given);
  CHECK(cost.value == 163);
  CHECK(cost.source.find("perf.txt:2, with t_loop, t_trace as in turin") != std::string::npos);
  REQUIRE(result.sums.size() == 1);
  CHECK(terms_text(result.sums.front().terms) == "t_loop + h_cpuid + t_trace");
  CHECK(result.unused.empty());
}

TEST_CASE("a convention that would leave less than nothing for a handler is fitted, too") {
  Costs host = builtin_profile("turin").cost;
  host.t_loop = 100;
  host.h_insn = 20;
  const TempDir directory;
  Request request =
      request_of({directory.write("vmexit.txt", vmexit_output(host, {"cpuid", "vmcall", "wbinvd"}))});
  request.keep = {"t_world"};
  const Calibration result = calibrate(request);
  CHECK(cost_of(result, "t_loop").finding == Finding::sum);
  CHECK(cost_of(result, "t_loop").value < 120);
  for (const ComparedMeasurement& one : result.measurements)
    CHECK(std::abs(one.predicted - one.measurement.cycles) <= 1);
}

TEST_CASE("a table in microseconds is taken as exact as it is") {
  Costs host = builtin_profile("turin").cost;
  host.t_trace = 640;
  host.t_world = 900;
  const TempDir directory;
  std::vector<std::string> inputs{
      directory.write("vmexit.txt", vmexit_output(host, {"cpuid", "wr_tsc_adjust_msr"}))};
  for (const std::string program : {"cpuid", "wr_tsc_adjust_msr"})
    inputs.push_back(program + ":" +
                     directory.write(program + ".txt", perf_table(run_on(host, program, "4000000", true))));
  const Calibration result = calibrate(request_of(inputs));
  // Two decimals of a microsecond: eight cycles to either side. t_trace is fitted nevertheless.
  for (const auto& [name, truth] : std::map<std::string, double>{{"t_trace", 640}, {"t_world", 900}}) {
    const FittedCost& cost = cost_of(result, name);
    CAPTURE(name);
    CAPTURE(cost.value);
    CHECK(cost.finding == (cost.error_pct <= 2 ? Finding::identified : Finding::uncertain));
    CHECK(std::abs(static_cast<double>(cost.value) - truth) <= 3 * cost.error_pct / 100 * truth);
    CHECK(cost.error_pct < 5);
  }
  for (const ComparedMeasurement& one : result.measurements) {
    if (one.measurement.kind == MeasurementKind::exit_time) CHECK(one.error_cycles > 5);
  }
}

TEST_CASE("a time that is no straight line of the costs counts less") {
  const Costs host = builtin_profile("turin").cost;
  const TempDir directory;
  const std::vector<std::string> programs{"inl_from_qemu", "inl_from_kernel", "tscdeadline"};
  const Calibration result =
      calibrate(request_of({directory.write("vmexit.txt", vmexit_output(host, programs))}));
  REQUIRE(result.measurements.size() == 3);
  CHECK(result.measurements[0].error_cycles < 1);
  // The guest waits in turns of its loop for a timer that KVM advances by what it learns.
  CHECK(result.measurements[2].error_cycles > 3);
  CHECK(cost_of(result, "t_user_exit").finding == Finding::identified);
}

TEST_CASE("tables that were made without recording have no t_trace in them") {
  Costs host = builtin_profile("turin").cost;
  const TempDir directory;
  const RunResult plain = run_on(host, "cpuid", "1000000", false);
  const auto row = total_exits(plain).front().counter;
  const std::string text = fmt::format(
      "Event name   Samples   Sample%    Time (ns)     Time%   Max Time (ns)   Min Time (ns)  Mean Time "
      "(ns)\n"
      "cpuid {} 100.00% {:.0f} 100.00% 1 1 1\n",
      row.count, static_cast<double>(row.time) * 1e9 / static_cast<double>(plain.tsc_hz));
  Request request = request_of({directory.write("table.txt", text)});
  request.events.clear();
  const Calibration result = calibrate(request);
  CHECK(cost_of(result, "h_cpuid").value == static_cast<std::int64_t>(host.h_cpuid));
  CHECK(terms_text(result.sums.front().terms) == "t_loop + h_cpuid");
}

TEST_CASE("calibration refuses what identifies nothing, by name") {
  const TempDir directory;
  const auto file = [&directory](const char* name, const std::string& text) {
    return directory.write(name, text);
  };
  const auto refusal = [&directory](const std::vector<std::string>& inputs) {
    std::string text = refusal_of(request_of(inputs));
    for (std::size_t at = 0; (at = text.find(directory.path() + "/")) != std::string::npos;)
      text.erase(at, directory.path().size() + 1);
    return text;
  };
  const std::string heading =
      "Event name   Samples   Sample%    Time (ns)     Time%   Max Time (ns)   Min Time (ns)  Mean Time "
      "(ns)\n";
  CHECK(refusal({file("one.txt", "cpuid 1234\n")}) ==
        "one.txt:1: cpuid: gives the sum t_world + h_cpuid alone, none of its costs\n"
        "--keep: with t_world known (--keep t_world, or --keep t_world=CYCLES) they tell h_cpuid");
  CHECK(refusal({file("hlt.txt", heading + "hlt 100 50.00% 5000000 50.00% 90000 20000 50000\n")}) ==
        "hlt.txt:2: hlt: its time depends on what the guest did; name that as WORKLOAD:hlt.txt");
  CHECK(refusal({file("vmx.txt", heading + "EPT_VIOLATION 100 50.00% 100000 50.00% 9000 500 1000\n"
                                           "cpuid 100 50.00% 100000 50.00% 9000 500 1000\n")}) ==
        "vmx.txt:1: the table holds exits of vmx, by its row EPT_VIOLATION; a profile is of an SVM host");
  CHECK(refusal({file("kut.txt", "cpiud 1234\npci-mem 900\n")}) ==
        "kut.txt:1: cpiud: no built-in program of that name measures cycles (did you mean cpuid?)\n"
        "kut.txt:2: pci-mem: no built-in program of that name measures cycles");
  CHECK(refusal({file("prose.txt", "nothing to see\n")}) ==
        "prose.txt: holds neither a table of `perf kvm stat report` nor a line NAME CYCLES of a "
        "microbenchmark");
  CHECK(
      refusal({"vmcal:" + file("t.txt", heading + "cpuid 100 50.00% 100000 50.00% 9000 500 1000\n")})
          .find(
              "--from: vmcal: is neither a built-in program nor a scenario (.toml) (did you mean vmcall?)") ==
      0);
  CHECK(refusal({"vmcall:" + file("t.txt", heading + "cpuid 100 50.00% 100000 50.00% 9000 500 1000\n")}) ==
        "t.txt:2: cpuid: the simulated vmcall has no such exit under these settings");
  CHECK(refusal({file("trace.txt", "qemu-1 [000] 1.000001: kvm_entry: vcpu 0, rip 0x1\n")})
            .find("trace.txt:1: is a recording of events") == 0);
  // What reaches a cost that is kept, or none.
  Request kept = request_of({file("cpuid.txt", "cpuid 1234\n")});
  kept.keep = {"t_world", "h_cpuid", "t_lop"};
  CHECK(refusal_of(kept) == "--keep: t_lop is no cost in cycles (did you mean t_loop?)");
  kept.keep = {"t_world", "h_cpuid=-3"};
  CHECK(refusal_of(kept).find("h_cpuid=-3 is no number of cycles from 0 to 1000000000") != std::string::npos);
  kept.keep = {"t_world", "t_loop", "h_cpuid"};
  CHECK(refusal_of(kept).find("cpuid.txt:1: cpuid: no cost that is not kept changes its time") !=
        std::string::npos);
  CHECK_THROWS_AS((void)calibrate(request_of({"no/such/file"})), TraceError);
}

TEST_CASE("a calibration is the same each time, and its profile loads") {
  const Costs host = random_host(21);
  const TempDir directory;
  const std::vector<std::string> inputs{
      directory.write("vmexit.txt", vmexit_output(host, {"cpuid", "inl_from_qemu", "inl_from_kernel"})),
      directory.write("perf.txt", perf_table_ns(host, "cpuid"))};
  Request request = request_of(inputs);
  request.tsc_hz = 2'400'000'000;
  request.name = "my \"host\"";
  const Calibration result = calibrate(request);
  CHECK(to_json(result) == to_json(calibrate(request)));
  const std::string file = directory.write("my-host.toml", profile_toml(result.fitted));
  const Profile loaded = load_profile(file);
  CHECK(loaded.name == "my \"host\"");
  CHECK(loaded.tsc_hz == 2'400'000'000);
  CHECK(values_of(loaded.cost) == values_of(result.fitted.cost));
  CHECK(loaded.cost.t_world_entry_pct == builtin_profile("turin").cost.t_world_entry_pct);
  CHECK(loaded.cstates.size() == builtin_profile("turin").cstates.size());
  CHECK(loaded.features.names() == builtin_profile("turin").features.names());
  CHECK(profile_toml(loaded) == profile_toml(result.fitted));
  const Scenario scenario = scenario_of("cpuid", {"host.profile=\"" + file + "\""});
  CHECK(scenario.host.cost.t_user_exit == result.fitted.cost.t_user_exit);
}

TEST_CASE("contradicting measurements are worth less") {
  const TempDir directory;
  const auto error_of = [&directory](const std::string& text) {
    Request request = request_of({directory.write("vmexit.txt", text)});
    request.keep = {"t_world"};
    const Calibration result = calibrate(request);
    return cost_of(result, "h_cpuid").error_pct;
  };
  const double agree = error_of("cpuid 1250\ncpuid 1250\n");
  const double disagree = error_of("cpuid 1230\ncpuid 1270\n");
  CHECK(agree > 0.0);
  CHECK(disagree > 10 * agree);
}

TEST_CASE("bounded least squares keeps its bounds and reaches the least residual within them") {
  std::mt19937 random(7);
  const auto number = [&random] { return static_cast<double>(random() % 2001) / 1000.0 - 1.0; };
  for (int round = 0; round < 200; ++round) {
    const Eigen::Index columns = 1 + static_cast<Eigen::Index>(random() % 6);
    const Eigen::Index rows = columns + static_cast<Eigen::Index>(random() % 4);
    Eigen::MatrixXd a = Eigen::MatrixXd::NullaryExpr(rows, columns, number);
    a.topRows(columns) += 2.0 * Eigen::MatrixXd::Identity(columns, columns);
    const Eigen::VectorXd b = Eigen::VectorXd::NullaryExpr(rows, number) * 3.0;
    const Eigen::VectorXd lower = Eigen::VectorXd::Constant(columns, -0.3);
    const Eigen::VectorXd upper = Eigen::VectorXd::Constant(columns, 0.4);
    const Eigen::VectorXd x = bounded_least_squares(a, b, lower, upper, Eigen::VectorXd::Zero(columns));
    const Eigen::VectorXd slope = a.transpose() * (a * x - b);  // the conditions of Karush, Kuhn and Tucker
    for (Eigen::Index j = 0; j < columns; ++j) {
      CHECK(x[j] >= lower[j]);
      CHECK(x[j] <= upper[j]);
      if (x[j] > lower[j]) CHECK(slope[j] < 1e-6);
      if (x[j] < upper[j]) CHECK(slope[j] > -1e-6);
    }
  }
}

TEST_CASE("a singular system says which columns it determines") {
  Eigen::MatrixXd a(3, 3);
  a << 1, 1, 0,  //
      1, 1, 0,   //
      0, 0, 4;
  const Determination found = determine(a);
  CHECK(found.rank == 2);
  CHECK(std::isinf(found.errors[0]));
  CHECK(std::isinf(found.errors[1]));
  CHECK(found.errors[2] == doctest::Approx(0.25));
  CHECK(found.singular_values[2] == 0.0);
  CHECK(independent_rows(a, {0, 1, 2}) == std::vector<Eigen::Index>{0, 2});
}

}  // namespace svmsim::model::calibration
