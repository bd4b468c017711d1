#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace svmsim::workloads {

/// Lines of a stream in constant memory. A line ends at '\n'; a '\r' before it is dropped.
class LineSource {
 public:
  /// A line longer than `max_line_bytes` is cut there and its rest is skipped.
  LineSource(std::istream& in, std::size_t max_line_bytes);

  /// The next line, valid until the next call. False at the end.
  bool next(std::string_view& line);
  /// Whether the last line was cut.
  [[nodiscard]] bool cut() const noexcept { return cut_; }
  /// Number of the last line, 1-based.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

 private:
  bool fill();

  std::istream& in_;
  std::size_t max_line_bytes_;
  std::vector<char> chunk_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::string carry_;  ///< a line that began in an earlier chunk
  std::uint64_t number_ = 0;
  bool cut_ = false;
};

/// A file opened for reading, unpacked on the fly when its first bytes say gzip, xz or zstd.
class UnpackingFile {
 public:
  /// Throws TraceError when the file cannot be read. `max_expansion` bounds the unpacked size by that many
  /// times the packed one (64 MiB are always allowed).
  explicit UnpackingFile(const std::string& path, unsigned max_expansion);
  ~UnpackingFile();
  UnpackingFile(const UnpackingFile&) = delete;
  UnpackingFile& operator=(const UnpackingFile&) = delete;

  [[nodiscard]] std::istream& stream();
  /// The first unpacked bytes (up to a chunk), without consuming them. Before anything is read only.
  [[nodiscard]] std::string_view head();
  /// The file is not packed.
  [[nodiscard]] bool plain() const noexcept;
  /// Why reading stopped before the end of the file ("the xz data is damaged or ends early"); "" if it did
  /// not.
  [[nodiscard]] std::string failure() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace svmsim::workloads
