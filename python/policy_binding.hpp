#pragma once

#include <pybind11/pybind11.h>

/// Adds halt_poll_windows() and guest_halt_poll_limits(): the polling governors, fed with times.
void bind_policies(pybind11::module_& module);
