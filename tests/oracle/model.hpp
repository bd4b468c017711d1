#pragma once

#include <cstdint>
#include <string_view>

#include "svm/knobs.hpp"
#include "tests/oracle/result.hpp"
#include "tests/oracle/vector.hpp"

namespace svmsim::oracle {

enum class ModelEnd : std::uint8_t {
  vmexit,
  halted,    ///< the guest sleeps, and nothing that is pending can wake it
  shutdown,  ///< not intercepted: the machine is gone
  lost,      ///< the guest ran out of its program: the generator's fault
  unknown,   ///< an action that GuestCpu does not have
};

struct ModelAnswer {
  ModelEnd end = ModelEnd::lost;
  Result result;        ///< of vmexit
  bool waited = false;  ///< a HLT or MWAIT was executed in the guest, without an exit
};

/// What GuestCpu makes of a vector on such a processor, from VMRUN to #VMEXIT, and which events the host
/// takes after it.
[[nodiscard]] ModelAnswer run_model(const Vector& vector, const Processor& processor,
                                    const svm::Knobs& knobs = {});

}  // namespace svmsim::oracle
