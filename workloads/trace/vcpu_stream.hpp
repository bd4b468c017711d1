#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/kernel_generation.hpp"
#include "workloads/trace/capture.hpp"
#include "workloads/trace/generation_probe.hpp"

namespace svmsim::workloads {

/// The events of one vCPU, in file order: those of its thread, or of its vCPU field where the lines name no
/// thread.
struct VcpuStream {
  int vm = 0;  ///< counts threads that say they are the same vCPU: they belong to different VMs
  int vcpu = 0;
  std::int32_t tid = -1;
  std::vector<std::uint32_t> events;  ///< indices into Capture::events
};

/// Streams sorted by VM and vCPU. Events of threads that never enter a guest are in no stream.
[[nodiscard]] std::vector<VcpuStream> split_streams(const Capture& capture);

/// "kvm_pio:at 0x11": the first event of that name whose text contains the rest.
struct EventPattern {
  std::string event;
  std::string text;

  /// Throws UserError when there is no colon.
  [[nodiscard]] static EventPattern parse(std::string_view pattern);
};

/// Cuts a stream to what lies from the kvm_entry after the first event that matches `from` up to, and
/// without, the last kvm_exit before the first later event that matches `to`: the two exits to which the
/// marks belong stay outside. False, and the stream is unchanged, when a mark is missing.
bool cut_window(const Capture& capture, KernelGeneration kernel, const EventPattern& from,
                const EventPattern& to, VcpuStream& stream);

/// GenerationProbe over a whole capture.
[[nodiscard]] GenerationGuess infer_generation(const Capture& capture);

}  // namespace svmsim::workloads
