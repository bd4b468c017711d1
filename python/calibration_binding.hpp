#pragma once

#include <pybind11/pybind11.h>

void bind_calibration(pybind11::module_& module);
