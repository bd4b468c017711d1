#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "svm/user_error.hpp"
#include "workloads/trace/workload_file.hpp"

// What can be read can be written, and reads the same again.

using namespace svmsim;
using namespace svmsim::workloads;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    const ReplayWorkload workload = read_workload(in, "fuzz");
    std::ostringstream first;
    write_workload(first, workload);
    std::istringstream again(first.str());
    std::ostringstream second;
    write_workload(second, read_workload(again, "written"));
    if (first.str() != second.str()) std::abort();
  } catch (const TraceError&) {
  }
  return 0;
}
