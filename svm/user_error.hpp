#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace svmsim {

/// One thing that is wrong with a user's input: where it stands, what is wrong, and the nearest valid value.
struct Problem {
  std::string source;    ///< file name, or "<dict>", "--set"; empty when there is none
  std::size_t line = 0;  ///< 1-based; 0 when there is none
  std::string path;      ///< full key path ("vm.vm0.pin"), or the name of the violated rule
  std::string message;   ///< one sentence without a final full stop
  std::string nearest;   ///< nearest valid name or value; empty when there is none

  /// "file:line: path: message (did you mean nearest?)", leaving out what is empty.
  [[nodiscard]] std::string text() const;
};

/// The user's input is wrong. Carries all problems found, never only the first; what() lists them a line
/// each.
class UserError : public std::exception {
 public:
  explicit UserError(std::vector<Problem> problems);
  explicit UserError(Problem problem) : UserError(std::vector<Problem>{std::move(problem)}) {}

  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const std::vector<Problem>& problems() const noexcept { return problems_; }

 private:
  std::vector<Problem> problems_;
  std::string text_;
};

/// A trace, or another recorded input, cannot be read.
class TraceError : public UserError {
 public:
  using UserError::UserError;
};

/// A broken invariant of ours. The message says which, with the state that broke it.
class InternalError : public std::exception {
 public:
  explicit InternalError(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// The candidate with the smallest edit distance to `name`, or "" when none is close enough to be meant.
[[nodiscard]] std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace svmsim
