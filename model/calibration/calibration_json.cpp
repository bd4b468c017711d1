#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/calibration/calibration.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model::calibration {

namespace {

using Json = nlohmann::ordered_json;

/// Digits beyond this are noise of the conversion, and differ between compilers.
double rounded(double value, double unit = 1000.0) {
  return std::round(value * unit) / unit;
}

Json terms_json(const Terms& terms) {
  Json result = Json::array();
  for (const auto& [name, factor] : terms)
    result.push_back({{"cost", name}, {"factor", rounded(factor)}});
  return result;
}

Json measurement_json(const ComparedMeasurement& one) {
  const Measurement& measurement = one.measurement;
  Json result;
  result["source"] = measurement.source;
  result["line"] = measurement.line;
  result["name"] = measurement.name;
  result["kind"] = measurement.kind == MeasurementKind::round_trip ? "round trip" : "exit time";
  result["workload"] = measurement.workload;
  result["count"] = measurement.count == 0 ? Json(nullptr) : Json(measurement.count);
  result["measured"] = rounded(measurement.cycles);
  result["error"] = rounded(one.error_cycles);
  result["before"] = rounded(one.before);
  result["predicted"] = rounded(one.predicted);
  result["residual_pct"] = rounded(100.0 * (one.predicted - measurement.cycles) / measurement.cycles);
  return result;
}

Json cost_json(const FittedCost& cost) {
  Json result;
  result["name"] = cost.name;
  result["finding"] = std::string(finding_name(cost.finding));
  result["before"] = cost.before;
  result["value"] = cost.value;
  result["error_pct"] = cost.error_pct < 0 ? Json(nullptr) : Json(rounded(cost.error_pct));
  result["kept"] = cost.kept;
  result["convention"] = cost.convention;
  result["at_bound"] = cost.at_bound;
  result["source"] = cost.source;
  return result;
}

std::vector<std::string> strings(const Json& options, const char* key) {
  return options.contains(key) ? options.at(key).get<std::vector<std::string>>() : std::vector<std::string>{};
}

Request request_of(const std::string& profile, const std::vector<std::string>& inputs,
                   const std::string& text) {
  Request request;
  request.profile = profile;
  request.inputs = inputs;
  request.events = perf_kvm_stat_events();
  try {
    const Json options = Json::parse(text);
    request.keep = strings(options, "keep");
    request.overrides = strings(options, "set");
    if (options.contains("events")) request.events = strings(options, "events");
    request.tsc_hz = options.value("tsc_hz", request.tsc_hz);
    request.error_pct = options.value("error_pct", request.error_pct);
    request.name = options.value("name", request.name);
  } catch (const Json::exception& error) {
    throw UserError(Problem{"", 0, "options", error.what(), ""});
  }
  return request;
}

}  // namespace

std::string to_json(const Calibration& calibration) {
  Json result;
  result["schema"] = 1;
  result["version"] = SVMSIM_VERSION;
  result["profile"] = calibration.profile;
  result["name"] = calibration.fitted.name;
  result["tsc_hz"] = calibration.fitted.tsc_hz;
  result["inputs"] = calibration.inputs;
  result["events"] = calibration.events;
  result["measurements"] = Json::array();
  for (const ComparedMeasurement& one : calibration.measurements)
    result["measurements"].push_back(measurement_json(one));
  result["unused"] = Json::array();
  for (const UnusedLine& one : calibration.unused) {
    result["unused"].push_back(
        {{"source", one.source}, {"line", one.line}, {"name", one.name}, {"reason", one.reason}});
  }
  for (const Finding finding :
       {Finding::identified, Finding::given, Finding::uncertain, Finding::sum, Finding::assumed}) {
    Json names = Json::array();
    for (const FittedCost& cost : calibration.costs) {
      if (cost.finding == finding) names.push_back(cost.name);
    }
    result["findings"][std::string(finding_name(finding))] = std::move(names);
  }
  result["costs"] = Json::array();
  for (const FittedCost& cost : calibration.costs)
    result["costs"].push_back(cost_json(cost));
  result["sums"] = Json::array();
  for (const MeasuredSum& sum : calibration.sums) {
    result["sums"].push_back({{"text", terms_text(sum.terms)},
                              {"cycles", rounded(sum.cycles)},
                              {"measured_by", sum.place},
                              {"terms", terms_json(sum.terms)}});
  }
  result["singular_values"] = Json::array();
  for (const Direction& direction : calibration.directions) {
    result["singular_values"].push_back({{"value", rounded(direction.singular_value)},
                                         {"determined", direction.singular_value >= calibration.threshold},
                                         {"combination", terms_json(direction.combination)}});
  }
  result["threshold"] = calibration.threshold;
  result["chi_square"] = rounded(calibration.chi_square);
  result["degrees_of_freedom"] = calibration.degrees_of_freedom;
  result["simulations"] = calibration.simulations;
  result["profile_toml"] = profile_toml(calibration.fitted);
  return result.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string calibrate_json(const std::string& profile, const std::vector<std::string>& inputs,
                           const std::string& options, const std::function<void()>& heartbeat) {
  return to_json(calibrate(request_of(profile, inputs, options), heartbeat));
}

}  // namespace svmsim::model::calibration
