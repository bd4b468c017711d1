# svmsim_embed(TARGET NAME SYMBOL GLOB): compiles data files into TARGET as
#   const std::vector<svmsim::EmbeddedFile>& SYMBOL();   (svm/embedded_file.hpp), sorted by name without suffix.
function(svmsim_embed target symbol pattern)
  file(GLOB files CONFIGURE_DEPENDS "${pattern}")
  list(SORT files)
  set(body "")
  foreach(path IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
    get_filename_component(name "${path}" NAME_WE)
    file(READ "${path}" text)
    string(APPEND body "    {\"${name}\", R\"svmsim(${text})svmsim\"},\n")
  endforeach()
  set(output "${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp")
  file(CONFIGURE OUTPUT "${output}.tmp" @ONLY CONTENT [[
#include "svm/embedded_file.hpp"

namespace svmsim {
const std::vector<EmbeddedFile>& @symbol@();
const std::vector<EmbeddedFile>& @symbol@() {
  static const std::vector<EmbeddedFile> files{
@body@  };
  return files;
}
}  // namespace svmsim
]])
  file(COPY_FILE "${output}.tmp" "${output}" ONLY_IF_DIFFERENT)
  target_sources(${target} PRIVATE "${output}")
endfunction()
