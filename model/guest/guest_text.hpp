#pragma once

#include <cstdint>

namespace svmsim::model {

/// Where the modelled guest kernel's code lies: rIPs of what exits.
namespace guest_text {
inline constexpr std::uint64_t boot = 0xffffffff81100000;
inline constexpr std::uint64_t schedule = 0xffffffff81101000;
inline constexpr std::uint64_t idle = 0xffffffff81102000;
inline constexpr std::uint64_t timer = 0xffffffff81103000;
inline constexpr std::uint64_t call = 0xffffffff81104000;
inline constexpr std::uint64_t device = 0xffffffff81105000;
inline constexpr std::uint64_t syscall = 0xffffffff81106000;
inline constexpr std::uint64_t handler = 0xffffffff81200000;  ///< + 100h x vector
inline constexpr std::uint64_t user = 0x400000;
}  // namespace guest_text

}  // namespace svmsim::model
