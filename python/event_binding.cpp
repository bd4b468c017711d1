#include "python/event_binding.hpp"

#include <string>

#include <pybind11/numpy.h>

#include "workloads/trace/event.hpp"

namespace py = pybind11;

namespace {

template <typename T>
py::array_t<T> column(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

}  // namespace

py::dict event_columns(const svmsim::model::EventListSink& events,
                       const svmsim::model::Simulation& simulation) {
  using svmsim::workloads::EventKind;
  py::dict result;
  result["time_ns"] = column(events.time_ns);
  result["kind"] = column(events.kind);
  result["cpu"] = column(events.cpu);
  result["tid"] = column(events.tid);
  result["vcpu"] = column(events.vcpu);
  constexpr py::ssize_t width = 8;
  const auto count = static_cast<py::ssize_t>(events.fields.size());
  result["fields"] =
      py::array_t<std::uint64_t>({count, width}, count == 0 ? nullptr : events.fields.front().data());
  py::list kinds;
  for (unsigned kind = 0; kind < static_cast<unsigned>(EventKind::other); ++kind)
    kinds.append(std::string(event_name(static_cast<EventKind>(kind))));
  result["kinds"] = kinds;
  py::list threads;
  for (const auto& [tid, comm] : simulation.threads())
    threads.append(py::make_tuple(tid, comm));
  result["threads"] = threads;
  return result;
}
