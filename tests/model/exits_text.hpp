#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

using Exits = std::map<std::string, std::uint64_t>;

/// Exits of one vCPU by name.
inline Exits exits_of_vcpu(const RunResult& result, unsigned vcpu) {
  Exits exits;
  for (const auto& row : result.vcpus[vcpu].exits)
    exits[exit_row_name(row.code)] = row.counter.count;
  return exits;
}

}  // namespace svmsim::model::test

namespace doctest {

template <>
struct StringMaker<svmsim::model::test::Exits> {
  static String convert(const svmsim::model::test::Exits& exits) {
    std::string text;
    for (const auto& [name, count] : exits)
      text += name + " " + std::to_string(count) + " ";
    return text.c_str();
  }
};

}  // namespace doctest
