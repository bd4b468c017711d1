#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace svmsim::model {

/// A set of pCPUs. Looking for a member costs a step per 64 pCPUs.
class CpuSet {
 public:
  static constexpr unsigned none = ~0U;

  CpuSet() = default;
  explicit CpuSet(unsigned cpus, bool full = false)
      : words_((cpus + word_bits - 1) / word_bits, full ? ~std::uint64_t{0} : 0) {
    if (full && cpus % word_bits != 0) words_.back() = (std::uint64_t{1} << (cpus % word_bits)) - 1;
  }

  void add(unsigned cpu) { words_[cpu / word_bits] |= bit(cpu); }
  void remove(unsigned cpu) { words_[cpu / word_bits] &= ~bit(cpu); }
  [[nodiscard]] bool has(unsigned cpu) const { return (words_[cpu / word_bits] & bit(cpu)) != 0; }

  /// The first member of this set and, where given, of `also`, from `start` on and below `end`; none
  /// otherwise.
  [[nodiscard]] unsigned first(unsigned start, unsigned end, const CpuSet* also = nullptr) const {
    for (unsigned word = start / word_bits; word * word_bits < end; ++word) {
      std::uint64_t found = words_[word];
      if (also != nullptr) found &= also->words_[word];
      if (word == start / word_bits) found &= ~std::uint64_t{0} << (start % word_bits);
      if (found == 0) continue;
      const unsigned cpu = word * word_bits + static_cast<unsigned>(__builtin_ctzll(found));
      return cpu < end ? cpu : none;
    }
    return none;
  }
  /// The same within [begin, end), from `start` around.
  [[nodiscard]] unsigned first_around(unsigned start, unsigned begin, unsigned end,
                                      const CpuSet* also = nullptr) const {
    const unsigned after = first(start, end, also);
    return after != none ? after : first(begin, start, also);
  }

 private:
  static constexpr unsigned word_bits = 64;
  [[nodiscard]] static constexpr std::uint64_t bit(unsigned cpu) {
    return std::uint64_t{1} << (cpu % word_bits);
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace svmsim::model
