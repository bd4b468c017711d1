// The extension module svmsim._core: the facade of the model for Python. Everything crosses the border as
// JSON text.

#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "model/config/describe.hpp"
#include "model/config/loader.hpp"
#include "model/event_list_sink.hpp"
#include "model/replay.hpp"
#include "model/simulation.hpp"
#include "model/stats/perf_table.hpp"
#include "model/stats/run_result.hpp"
#include "model/trace_file_sink.hpp"
#include "python/binding_support.hpp"
#include "python/calibration_binding.hpp"
#include "python/event_binding.hpp"
#include "python/policy_binding.hpp"
#include "python/svm_binding.hpp"
#include "python/vmcb_binding.hpp"
#include "svm/user_error.hpp"
#include "workloads/trace/convert.hpp"
#include "workloads/trace/diagnosis.hpp"
#include "workloads/trace/workload_adapters.hpp"

namespace py = pybind11;

namespace {

using svmsim::InternalError;
using svmsim::Problem;
using svmsim::TraceError;
using svmsim::UserError;
using svmsim::model::Scenario;
using svmsim::model::ScenarioSource;

Scenario load(const std::string& source, bool is_file, const std::string& base_dir,
              const std::vector<std::string>& overrides) {
  const auto from = is_file ? ScenarioSource::from_file(source) : ScenarioSource::from_json(source, base_dir);
  return load_scenario(from, overrides);
}

/// Calls back into Python about ten times a second of simulated work, and lets Ctrl-C through.
svmsim::model::Progress progress_to(const py::object& callback) {
  return [callback](std::uint64_t simulated_ns, double share) {
    (void)simulated_ns;
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!callback.is_none()) callback(share);
  };
}

std::string run(const std::string& source, bool is_file, const std::string& base_dir,
                const std::vector<std::string>& overrides, const std::string& trace,
                const py::object& progress, const std::string& waveform, const py::object& events,
                std::size_t most_events, const std::string& trace_format, bool markers) {
  svmsim::model::Simulation simulation(load(source, is_file, base_dir, overrides));
  std::unique_ptr<svmsim::model::TraceFileSink> sink;
  if (!trace.empty()) {
    sink = std::make_unique<svmsim::model::TraceFileSink>(trace, simulation, trace_format);
    simulation.add_sink(*sink);
    simulation.set_markers(markers);
  }
  svmsim::model::EventListSink list(simulation.scenario().host.tsc_hz, most_events);
  if (!events.is_none()) simulation.add_sink(list);
  simulation.set_waveform(waveform);
  simulation.set_progress(progress_to(progress));
  std::string json;
  {
    const py::gil_scoped_release release;
    const auto result = simulation.run();
    if (sink) sink->close();
    json = to_json(result);
  }
  if (!events.is_none()) events.attr("update")(event_columns(list, simulation));
  return json;
}

void translate(std::exception_ptr pending) {
  try {
    std::rethrow_exception(pending);
  } catch (const TraceError& error) {
    raise_user_error("TraceError", error);
  } catch (const UserError& error) {
    raise_user_error("ScenarioError", error);
  } catch (const InternalError& error) {
    const py::object type = py::module_::import("svmsim.errors").attr("InternalError");
    PyErr_SetObject(type.ptr(), type(error.what()).ptr());
  }
}

}  // namespace

void raise_user_error(const char* name, const UserError& error) {
  py::list problems;
  for (const Problem& problem : error.problems()) {
    py::dict item;
    item["source"] = problem.source;
    item["line"] = problem.line;
    item["path"] = problem.path;
    item["message"] = problem.message;
    item["nearest"] = problem.nearest;
    problems.append(item);
  }
  const py::object type = py::module_::import("svmsim.errors").attr(name);
  PyErr_SetObject(type.ptr(), type(problems).ptr());
}

PYBIND11_MODULE(_core, module) {
  module.doc() = "Binding of the svmsim model. Use the package svmsim instead.";
  py::register_exception_translator([](std::exception_ptr pending) {
    if (pending) translate(pending);
  });

  module.def("version", [] { return std::string(SVMSIM_VERSION); });
  module.def("describe", [] { return svmsim::model::describe_json(); });
  module.def("json_schema", [] { return svmsim::model::json_schema(); });
  module.def(
      "resolve",
      [](const std::string& source, bool is_file, const std::string& base_dir,
         const std::vector<std::string>& overrides) {
        return resolved_json(load(source, is_file, base_dir, overrides));
      },
      py::arg("source"), py::arg("is_file"), py::arg("base_dir"), py::arg("overrides"));
  module.def("run", &run, py::arg("source"), py::arg("is_file"), py::arg("base_dir"), py::arg("overrides"),
             py::arg("trace") = "", py::arg("progress") = py::none(), py::arg("waveform") = "",
             py::arg("events") = py::none(), py::arg("most_events") = 20'000'000,
             py::arg("trace_format") = "", py::arg("markers") = false);
  module.def(
      "perf_table",
      [](const std::string& result, const std::string& layout) {
        return svmsim::model::perf_table_of_json(result, layout);
      },
      py::arg("result_json"), py::arg("layout") = "");
  module.def(
      "diagnosis",
      [](const std::vector<std::string>& paths, int capture, const std::string& isa) {
        const py::gil_scoped_release release;
        return svmsim::workloads::diagnosis_json(paths, capture, isa);
      },
      py::arg("paths"), py::arg("capture") = 0, py::arg("isa") = "");
  module.def(
      "adapt_workload",
      [](const std::vector<std::string>& paths, const std::string& output, const std::string& operation) {
        const py::gil_scoped_release release;
        return svmsim::workloads::adapt_workload_files(paths, output, operation);
      },
      py::arg("paths"), py::arg("output"), py::arg("operation"));
  module.def(
      "convert_trace",
      [](const std::vector<std::string>& paths, const std::string& output, const std::string& format,
         int capture) {
        const py::gil_scoped_release release;
        svmsim::workloads::convert_trace(paths, output, format, capture);
      },
      py::arg("paths"), py::arg("output"), py::arg("trace_format") = "", py::arg("capture") = 0);
  module.def(
      "import_trace",
      [](const std::vector<std::string>& paths, const std::string& output, int capture,
         const std::string& options) {
        const py::gil_scoped_release release;
        return svmsim::model::import_trace_json(paths, output, capture, options);
      },
      py::arg("paths"), py::arg("output") = "", py::arg("capture") = 0, py::arg("options") = "{}");
  module.def(
      "replay",
      [](const std::string& path, int capture, const std::vector<std::string>& overrides,
         const std::string& trace) {
        const svmsim::model::Progress progress = progress_to(py::none());
        const py::gil_scoped_release release;
        return svmsim::model::replay_json(path, capture, overrides, trace, progress);
      },
      py::arg("path"), py::arg("capture") = 0, py::arg("overrides") = std::vector<std::string>{},
      py::arg("trace") = "");
  bind_calibration(module);
  bind_vmcb(module);
  bind_svm(module);
  bind_policies(module);
}
