#pragma once

#include <string>

#include <pybind11/pybind11.h>

#include "svm/conformance/case_tree.hpp"

/// Adds Vmcb, Environment, GuestCpu, Step and the conformance cases to the module, and the translation of
/// CaseError.
void bind_svm(pybind11::module_& module);

/// The three parts of bind_svm(), a file each.
void bind_vmcb_and_environment(pybind11::module_& module);
void bind_guest_cpu(pybind11::module_& module);
void bind_check(pybind11::module_& module);

/// A Python value as case files have it: dict, list, str, int, bool. Throws CaseError at `path` for others.
[[nodiscard]] svmsim::svm::conformance::CaseNode node_of(const pybind11::handle& value,
                                                         const std::string& path);
