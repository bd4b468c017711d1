// Any bytes as a file for `svmsim vmcb explain`: a report, or one VmcbError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "svm/vmcb_dump/dump_parser.hpp"
#include "svm/vmcb_dump/explain.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace svmsim::svm;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const VmcbImage& image : parse_kernel_dumps(bytes, "log")) {
    if ((image.present & image.lost).any() || (image.present & image.not_printed).any()) std::abort();
    if (image.first_line > image.last_line) std::abort();
  }
  try {
    const VmcbReport report = explain(parse_vmcb_image(bytes, "file"));
    if (to_json(report).empty()) std::abort();
  } catch (const VmcbError& error) {
    if (error.problems().size() != 1) std::abort();
  }
  return 0;
}
