#pragma once

#include <pybind11/pybind11.h>

/// Adds explain_vmcb(), vmcb_suspicions() and hlt_table() to the module, and the translation of VmcbError.
void bind_vmcb(pybind11::module_& module);
