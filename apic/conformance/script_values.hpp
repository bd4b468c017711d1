#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apic/icr.hpp"
#include "apic/vector_set.hpp"
#include "svm/conformance/node_table.hpp"

// Values of the apic cases: how they are read, and how they are told.

namespace svmsim::apic::conformance {

using svm::conformance::CaseNode;
using svm::conformance::NodeTable;

/// How a value is written in a case.
enum class ValueKind : std::uint8_t {
  number,
  boolean,
  word,          ///< one of the choices
  words,         ///< a list of the choices, in order; one may stand alone
  vector,        ///< a vector, or "none"
  numbers,       ///< a list of numbers, in order; one may stand alone
  vectors,       ///< a set of vectors
  time,          ///< cycles, or "never"
  registers,     ///< a table: register name = number
  number_table,  ///< a table: number = number
  texts,         ///< a list of any texts
  exit,          ///< an exit code by any of its names, or "none"
};

using Choices = std::vector<std::string_view>;

/// One value to compare, in the spelling that both sides share; of a table there is one for each entry.
struct ExpectedText {
  std::string key;
  std::uint64_t argument = 0;
  std::string value;
};
[[nodiscard]] std::vector<ExpectedText> read_value(const CaseNode& node, ValueKind kind,
                                                   const Choices& choices, const std::string& path,
                                                   TomlProblems& problems);

[[nodiscard]] std::string number_text(std::uint64_t value);
[[nodiscard]] std::string boolean_text(bool value);
[[nodiscard]] std::string vector_text(int vector);  ///< -1: "none"
[[nodiscard]] std::string time_text(std::uint64_t cycles);
[[nodiscard]] std::string list_text(const std::vector<std::string>& words);
template <typename Number>
[[nodiscard]] std::string numbers_text(const std::vector<Number>& numbers) {
  std::vector<std::string> words;
  for (const Number number : numbers)
    words.push_back(number_text(number));
  return list_text(words);
}
[[nodiscard]] std::string vectors_text(const VectorSet& set);

/// A register by its name in the manual ("TPR", "LVT0", "IRR3") or the kernel ("APIC_TASKPRI", "TASKPRI"), or
/// by its offset ("0x80"); nothing, and a problem at `path`, when it is none.
[[nodiscard]] std::optional<std::uint32_t> register_named(const std::string& name, std::size_t line,
                                                          const std::string& path, TomlProblems& problems);
/// The one entry of an event that no key of its own names: "write TPR=0x20". Nothing, and a problem, when
/// there is none or more.
struct RegisterValue {
  std::uint32_t offset = 0;
  std::uint64_t value = 0;
};
[[nodiscard]] std::optional<RegisterValue> read_register_value(NodeTable& table);
[[nodiscard]] std::optional<std::uint32_t> read_register_name(NodeTable& table);

/// A number that must be there.
[[nodiscard]] std::uint64_t required(NodeTable& table, std::string_view key, std::uint64_t maximum);
[[nodiscard]] std::uint32_t required_32(NodeTable& table, std::string_view key);
[[nodiscard]] std::uint8_t required_8(NodeTable& table, std::string_view key);
/// An offset in the APIC page.
[[nodiscard]] std::uint32_t required_offset(NodeTable& table);
/// A word that must be one of `choices`; its index.
[[nodiscard]] std::optional<std::size_t> read_choice(NodeTable& table, std::string_view key,
                                                     const Choices& choices);

/// The fields of an interrupt command: vector, delivery, mode, level, assert, shorthand, to.
[[nodiscard]] IcrCommand read_command(NodeTable& table);
/// Names of the delivery modes in cases, in the order of their numbers.
[[nodiscard]] const Choices& delivery_choices();

}  // namespace svmsim::apic::conformance
