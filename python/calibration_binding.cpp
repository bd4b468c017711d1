#include "python/calibration_binding.hpp"

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "model/calibration/calibration.hpp"

namespace py = pybind11;

void bind_calibration(py::module_& module) {
  module.def(
      "calibrate",
      [](const std::string& profile, const std::vector<std::string>& inputs, const std::string& options) {
        // Lets Ctrl-C through between the simulations.
        const auto heartbeat = [] {
          const py::gil_scoped_acquire gil;
          if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        };
        const py::gil_scoped_release release;
        return svmsim::model::calibration::calibrate_json(profile, inputs, options, heartbeat);
      },
      py::arg("profile"), py::arg("inputs"), py::arg("options") = "{}");
}
