#pragma once

#include <string_view>
#include <vector>

namespace svmsim {

/// A data file of the source tree, compiled in by cmake/SvmsimEmbed.cmake so that the library needs no data
/// directory.
struct EmbeddedFile {
  std::string_view name;  ///< file name without directory and suffix
  std::string_view text;
};

}  // namespace svmsim
