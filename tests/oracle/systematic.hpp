#pragma once

// The parts of generate_systematic(), and what they share.

#include "svm/vmcb_bits.hpp"
#include "tests/oracle/generator.hpp"

namespace svmsim::oracle::systematic {

/// A vector with its guest program begun: `cpl` and `interrupts` are settled before anything is emitted.
inline Vector begin(const char* family, unsigned cpl = 0, bool interrupts = false) {
  Vector vector;
  vector.family = family;
  vector.program = Program(static_cast<std::uint8_t>(cpl), interrupts);
  if (cpl == 3) vector.set_cpl3();
  set_if(vector, interrupts);
  return vector;
}

inline void finish(const VectorSink& sink, Vector vector) {
  vector.program.end();
  sink(std::move(vector));
}

// systematic.cpp
void intercepts_by_actions(const VectorSink& sink);
void privilege_by_actions(const VectorSink& sink);
void events_by_actions(const VectorSink& sink);
void shadow_by_actions(const VectorSink& sink);

// systematic_subjects.cpp
void msr_map_edges(const VectorSink& sink);
void io_map_edges(const VectorSink& sink);
void consistency_checks(const VectorSink& sink);
void event_injection(const VectorSink& sink);
void virtual_interrupts(const VectorSink& sink);
void global_interrupt_flag(const VectorSink& sink);
void pause_filter(const VectorSink& sink);
void exceptions(const VectorSink& sink);
void self_interrupts(const VectorSink& sink);
void halts(const VectorSink& sink);

}  // namespace svmsim::oracle::systematic
