#pragma once

#include <pybind11/pybind11.h>

#include "model/event_list_sink.hpp"
#include "model/simulation.hpp"

/// The columns of the events as NumPy arrays, the names of their kinds by number, and the host's threads.
[[nodiscard]] pybind11::dict event_columns(const svmsim::model::EventListSink& events,
                                           const svmsim::model::Simulation& simulation);
