#include "model/sim_context.hpp"

#include <atomic>
#include <systemc>

#include "svm/user_error.hpp"

// libsystemc brings its own main() and wants this symbol; we never call it. Visible, because a Python
// extension that links libsystemc fails at import without it.
extern "C" __attribute__((visibility("default"))) int sc_main(int, char**);
extern "C" int sc_main(int, char**) {
  return 0;
}

namespace svmsim::model {

namespace {
std::atomic<bool> context_in_use{false};
}

SimContext::SimContext() {
  if (context_in_use.exchange(true)) {
    throw InternalError("a second simulation was built while another one exists in this process");
  }
  auto* context = new sc_core::sc_simcontext;
  sc_core::sc_curr_simcontext = context;
  sc_core::sc_default_global_context = context;
  // Stopping is normal here and deserves no message; warnings and errors keep their default handling (throw).
  sc_core::sc_report_handler::set_actions(sc_core::SC_INFO, sc_core::SC_DO_NOTHING);
}

SimContext::~SimContext() {
  delete sc_core::sc_curr_simcontext;
  sc_core::sc_curr_simcontext = nullptr;
  sc_core::sc_default_global_context = nullptr;
  context_in_use = false;
}

}  // namespace svmsim::model
