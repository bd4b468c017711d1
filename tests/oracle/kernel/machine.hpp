#pragma once

// The instructions that C++ has no words for.

#include <stdint.h>

namespace svmsim::oracle {

inline void out8(uint16_t port, uint8_t value) {
  asm volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}
inline void out32(uint16_t port, uint32_t value) {
  asm volatile("outl %0, %1" ::"a"(value), "Nd"(port));
}
inline void out_bytes(uint16_t port, const char* bytes, uint64_t count) {
  asm volatile("rep outsb" : "+S"(bytes), "+c"(count) : "d"(port) : "memory");
}
inline uint64_t read_msr(uint32_t msr) {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
  return uint64_t{high} << 32 | low;
}
inline void write_msr(uint32_t msr, uint64_t value) {
  asm volatile("wrmsr" ::"a"(uint32_t(value)), "d"(uint32_t(value >> 32)), "c"(msr) : "memory");
}
struct CpuidResult {
  uint32_t eax, ebx, ecx, edx;
};
inline CpuidResult cpuid(uint32_t leaf) {
  CpuidResult r{};
  asm volatile("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx) : "a"(leaf), "c"(0));
  return r;
}
template <typename T>
inline volatile T& memory(uint64_t address) {
  return *reinterpret_cast<volatile T*>(address);
}
// Loops, not string instructions: QEMU executes those one element at a time.
inline void copy(uint64_t to, uint64_t from, uint64_t bytes) {
  for (; bytes >= 8; bytes -= 8, to += 8, from += 8)
    memory<uint64_t>(to) = memory<uint64_t>(from);
  for (; bytes != 0; --bytes)
    memory<uint8_t>(to++) = memory<uint8_t>(from++);
}
inline void fill(uint64_t to, uint8_t value, uint64_t bytes) {
  for (; bytes >= 8; bytes -= 8, to += 8)
    memory<uint64_t>(to) = value * uint64_t{0x0101010101010101};
}

struct __attribute__((packed)) TablePointer {
  uint16_t limit;
  uint64_t base;
};

/// A line of text for the emulator's debug port, sent in one go.
class Line {
 public:
  Line& text(const char* s) {
    while (*s != 0)
      put(*s++);
    return *this;
  }
  Line& hex(uint64_t value) {
    char digits[16];
    unsigned n = 0;
    do {
      digits[n++] = "0123456789abcdef"[value & 15];
      value >>= 4;
    } while (value != 0);
    while (n != 0)
      put(digits[--n]);
    return *this;
  }
  Line& field(uint64_t value) {
    put(' ');
    return hex(value);
  }
  void send() {
    put('\n');
    out_bytes(0xe9, buffer_, used_);
    used_ = 0;
  }

 private:
  void put(char c) {
    if (used_ < sizeof buffer_ - 1 || (c == '\n' && used_ < sizeof buffer_)) buffer_[used_++] = c;
  }
  char buffer_[2048] = {};
  uint64_t used_ = 0;
};

}  // namespace svmsim::oracle
