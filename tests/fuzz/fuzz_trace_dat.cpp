#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "workloads/trace/import.hpp"

// trace.dat: the child process may die of a forged file, the parent must say so and go on.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / "svmsim-fuzz-dat-").string() + std::to_string(::getpid());
  std::FILE* const out = std::fopen(path.c_str(), "wb");
  if (out == nullptr) return 0;
  (void)std::fwrite("\x17\x08\x44tracing", 1, 10, out);
  (void)std::fwrite(data, 1, size, out);
  std::fclose(out);
  try {
    (void)svmsim::workloads::import_report_of_files({path});
  } catch (const svmsim::UserError&) {
  }
  return 0;
}
