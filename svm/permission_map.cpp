#include "svm/permission_map.hpp"

namespace svmsim::svm {

namespace {

template <std::size_t Size>
void set_bit(std::array<std::uint8_t, Size>& bytes, std::uint32_t bit, bool value) noexcept {
  const auto mask = static_cast<std::uint8_t>(1U << (bit & 7U));
  std::uint8_t& byte = bytes[bit >> 3];
  byte = static_cast<std::uint8_t>(value ? byte | mask : byte & ~mask);
}

}  // namespace

void MsrPermissionMap::set(std::uint32_t msr, bool read, bool write) noexcept {
  const std::int32_t bit = read_bit(msr);
  if (bit < 0) return;
  set_bit(bytes_, static_cast<std::uint32_t>(bit), read);
  set_bit(bytes_, static_cast<std::uint32_t>(bit) + 1, write);
}

void IoPermissionMap::set(std::uint32_t port, bool intercept) noexcept {
  if ((port >> 3) < size_bytes) set_bit(bytes_, port, intercept);
}

}  // namespace svmsim::svm
