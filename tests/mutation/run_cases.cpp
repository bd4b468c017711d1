// Runs the built-in conformance cases for scripts/mutate: exit status 0 when all pass, 1 at the first that
// fails or when a mutant throws.

#include <cstdio>
#include <exception>

#include "apic/conformance/subjects.hpp"
#include "svm/conformance/suite.hpp"

int main() {
  using namespace svmsim::svm::conformance;
  try {
    for (const SuiteCase& one : svmsim::apic::conformance::builtin_cases()) {
      if (run_cases({one}).failed == 0) continue;
      std::printf("%s\n", one.name.c_str());
      return 1;
    }
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
