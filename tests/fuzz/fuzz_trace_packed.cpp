#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "workloads/trace/import.hpp"

// Files as a whole: gzip, xz, zstd and what open_trace() makes of their first bytes.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / "svmsim-fuzz-").string() + std::to_string(::getpid());
  std::FILE* const out = std::fopen(path.c_str(), "wb");
  if (out == nullptr) return 0;
  (void)std::fwrite(data, 1, size, out);
  std::fclose(out);
  svmsim::workloads::ReadOptions reading;
  reading.max_expansion = 20;
  reading.perf = "/nonexistent";
  try {
    (void)svmsim::workloads::import_report_of_files({path}, {}, 0, reading);
  } catch (const svmsim::UserError&) {
  }
  return 0;
}
