#pragma once

#include <string>
#include <vector>

#include "svm/vmcb_dump/vmcb_image.hpp"

namespace svmsim::svm {

/// A field as a reader sees it.
struct DecodedField {
  std::string name;
  std::size_t offset = 0;            ///< in the page; 0 for registers that are not in it
  std::string value;                 ///< as in a dump: hexadecimal, or decimal where the kernel prints that
  std::vector<std::string> meaning;  ///< names of set bits, what a number says
};

struct DecodedGroup {
  std::string title;
  std::vector<DecodedField> fields;
};

/// All fields that the image has, by subject; a segment register is one row.
[[nodiscard]] std::vector<DecodedGroup> decode_fields(const VmcbImage& image);

/// What the exit was and what EXITINFO says about it. Empty without an exit code.
struct DecodedExit {
  std::string code;    ///< "0x400"
  std::string name;    ///< "VMEXIT_NPF", or "unknown"
  std::string kernel;  ///< as Linux' kvm_exit prints it
  std::string meaning;
  std::vector<std::string> details;  ///< of EXITINFO1 and 2, EXITINTINFO
};
[[nodiscard]] DecodedExit decode_exit(const VmcbImage& image);

/// "exception #GP (13), error code 0x10", or "none".
[[nodiscard]] std::string describe_event(std::uint32_t event, std::uint32_t error_code);
/// "#GP", or "vector 13h".
[[nodiscard]] std::string exception_name(std::uint8_t vector);
/// "64-bit mode, CPL 3", from the registers that are there.
[[nodiscard]] std::string describe_mode(const VmcbImage& image);

}  // namespace svmsim::svm
