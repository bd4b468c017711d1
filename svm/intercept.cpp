#include "svm/intercept.hpp"

#include "svm/exit_code.hpp"

namespace svmsim::svm {

std::string_view intercept_name(Intercept intercept) noexcept {
  const ExitInfo* info = find_exit(exit_code_of(intercept));
  return info != nullptr ? info->manual_name : std::string_view{};
}

}  // namespace svmsim::svm
