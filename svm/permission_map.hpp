#pragma once

#include <array>
#include <cstdint>

namespace svmsim::svm {

/// MSR permission map: 8 KiB, two bits per MSR, read then write; 1 = intercept. APM vol. 2, 15.11.
/// MSRs outside the three ranges have no bits and are always intercepted.
class MsrPermissionMap {
 public:
  static constexpr std::size_t size_bytes = 0x2000;

  /// Bit number of the read bit, or -1 for an MSR outside the map. The write bit is the next one.
  [[nodiscard]] static constexpr std::int32_t read_bit(std::uint32_t msr) noexcept {
    const std::uint32_t low = msr & 0x1fffU;
    switch (msr & ~0x1fffU) {
      case 0x00000000U:
        return static_cast<std::int32_t>(2 * low);
      case 0xc0000000U:
        return static_cast<std::int32_t>(0x4000 + 2 * low);
      case 0xc0010000U:
        return static_cast<std::int32_t>(0x8000 + 2 * low);
      default:
        return -1;
    }
  }

  [[nodiscard]] bool intercepts(std::uint32_t msr, bool write) const noexcept {
    const std::int32_t bit = read_bit(msr);
    if (bit < 0) return true;
    const auto index = static_cast<std::uint32_t>(bit) + (write ? 1U : 0U);
    return ((std::uint32_t{bytes_[index >> 3]} >> (index & 7U)) & 1U) != 0;
  }

  /// Sets or clears both bits of an MSR; without effect outside the ranges.
  void set(std::uint32_t msr, bool read, bool write) noexcept;
  void fill(bool intercept) noexcept { bytes_.fill(intercept ? 0xff : 0x00); }
  [[nodiscard]] std::array<std::uint8_t, size_bytes>& bytes() noexcept { return bytes_; }
  [[nodiscard]] const std::array<std::uint8_t, size_bytes>& bytes() const noexcept { return bytes_; }

 private:
  std::array<std::uint8_t, size_bytes> bytes_{};
};

/// I/O permission map: 12 KiB, one bit per port plus the bits that an access at FFFFh may touch. APM vol.
/// 2, 15.10.1.
class IoPermissionMap {
 public:
  static constexpr std::size_t size_bytes = 0x3000;

  /// Whether any of the `size` bytes at `port` is intercepted; does not wrap to port 0.
  [[nodiscard]] bool intercepts(std::uint16_t port, unsigned size) const noexcept {
    for (std::uint32_t p = port; p < std::uint32_t{port} + size; ++p) {
      if (((std::uint32_t{bytes_[p >> 3]} >> (p & 7U)) & 1U) != 0) return true;
    }
    return false;
  }

  void set(std::uint32_t port, bool intercept) noexcept;
  void fill(bool intercept) noexcept { bytes_.fill(intercept ? 0xff : 0x00); }
  [[nodiscard]] std::array<std::uint8_t, size_bytes>& bytes() noexcept { return bytes_; }
  [[nodiscard]] const std::array<std::uint8_t, size_bytes>& bytes() const noexcept { return bytes_; }

 private:
  std::array<std::uint8_t, size_bytes> bytes_{};
};

}  // namespace svmsim::svm
