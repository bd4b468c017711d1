#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace svmsim::apic {

/// A 256-bit register (IRR, ISR, TMR, IER) that knows its highest set bit.
class VectorSet {
 public:
  void set(std::uint8_t vector) noexcept {
    words_[vector >> 6] |= mask(vector);
    if (vector > highest_) highest_ = vector;
  }

  void clear(std::uint8_t vector) noexcept {
    words_[vector >> 6] &= ~mask(vector);
    if (vector == highest_) find_highest(vector >> 6);
  }

  /// Clears the highest vector, which there must be.
  void clear_highest() noexcept {
    const auto vector = static_cast<std::uint8_t>(highest_);
    words_[vector >> 6] &= ~mask(vector);
    find_highest(vector >> 6);
  }

  /// Sets a vector that is above all others.
  void set_highest(std::uint8_t vector) noexcept {
    words_[vector >> 6] |= mask(vector);
    highest_ = vector;
  }

  [[nodiscard]] bool test(std::uint8_t vector) const noexcept {
    return (words_[vector >> 6] & mask(vector)) != 0;
  }
  /// Highest vector in the set, or -1.
  [[nodiscard]] int highest() const noexcept { return highest_; }
  /// Bits 32 * index to 32 * index + 31, as the APIC's eight registers show them.
  [[nodiscard]] std::uint32_t word32(std::size_t index) const noexcept {
    return static_cast<std::uint32_t>(words_[index >> 1] >> (32 * (index & 1U)));
  }

  /// The eight registers' way to write: bits 32 * index to 32 * index + 31.
  void set_word32(std::size_t index, std::uint32_t value) noexcept {
    const unsigned shift = 32 * (index & 1U);
    std::uint64_t& word = words_[index >> 1];
    word = (word & ~(std::uint64_t{0xffffffffU} << shift)) | std::uint64_t{value} << shift;
    find_highest(3);
  }

  [[nodiscard]] friend VectorSet operator|(VectorSet a, const VectorSet& b) noexcept {
    for (std::size_t i = 0; i < a.words_.size(); ++i)
      a.words_[i] |= b.words_[i];
    a.find_highest(3);
    return a;
  }
  [[nodiscard]] friend VectorSet operator&(VectorSet a, const VectorSet& b) noexcept {
    for (std::size_t i = 0; i < a.words_.size(); ++i)
      a.words_[i] &= b.words_[i];
    a.find_highest(3);
    return a;
  }
  [[nodiscard]] friend VectorSet operator~(VectorSet a) noexcept {
    for (std::uint64_t& word : a.words_)
      word = ~word;
    a.find_highest(3);
    return a;
  }
  friend bool operator==(const VectorSet& a, const VectorSet& b) noexcept { return a.words_ == b.words_; }

 private:
  static constexpr std::uint64_t mask(std::uint8_t vector) noexcept {
    return std::uint64_t{1} << (vector & 63U);
  }

  void find_highest(int from_word) noexcept {
    for (int word = from_word; word >= 0; --word) {
      const std::uint64_t bits = words_[static_cast<std::size_t>(word)];
      if (bits != 0) {
        highest_ = 64 * word + 63 - __builtin_clzll(bits);
        return;
      }
    }
    highest_ = -1;
  }

  std::array<std::uint64_t, 4> words_{};
  int highest_ = -1;
};

}  // namespace svmsim::apic
