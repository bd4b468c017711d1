#pragma once

#include "svm/user_error.hpp"

/// Raises the Python class `name` of svmsim.errors for the problems of a UserError.
void raise_user_error(const char* name, const svmsim::UserError& error);
