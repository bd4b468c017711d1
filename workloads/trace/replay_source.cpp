#include "workloads/trace/replay_source.hpp"

#include <fmt/format.h>

#include "svm/user_error.hpp"

namespace svmsim::workloads {

using svm::ActionKind;

namespace {

/// value * to / from, rounded half up, without overflow for values below 2^64 / to seconds.
std::uint64_t scale(std::uint64_t value, std::uint64_t from, std::uint64_t to) {
  if (from == to) return value;
  return value / from * to + (value % from * to + from / 2) / from;
}

}  // namespace

/// Takes the flat list of a recording apart into the main stream and the handlers.
class ReplayLayout {
 public:
  ReplayLayout(ReplaySource& source, const ReplayWorkload& workload, const ReplayVcpu& vcpu,
               std::uint64_t tsc_hz)
      : source_(source), workload_(workload), items_(vcpu.items), tsc_hz_(tsc_hz) {
    std::size_t index = 0;
    lay_out(index, main_, nullptr);
    source_.steps_ = std::move(main_);
    source_.main_end_ = static_cast<std::uint32_t>(source_.steps_.size());
    // Position main_end_ is the end; handlers come behind it.
    source_.steps_.emplace_back();
    for (Body& body : bodies_) {
      source_.handlers_[body.vector].begin.push_back(static_cast<std::uint32_t>(source_.steps_.size()));
      source_.steps_.insert(source_.steps_.end(), body.steps.begin(), body.steps.end());
    }
    source_.bare_return_ = static_cast<std::uint32_t>(source_.steps_.size());
    ReplaySource::Step& bare = source_.steps_.emplace_back();
    bare.action.kind = ActionKind::iret;
    bare.action.length = default_length(ActionKind::iret, 0);
    bare.returns = true;
  }

 private:
  using Steps = std::vector<ReplaySource::Step>;
  struct Body {
    std::uint8_t vector = 0;
    Steps steps;
  };

  void lay_out(std::size_t& index, Steps& steps, const ReplayItem* interrupt) {
    std::uint32_t external_count = 0;
    const auto external = [&](bool host, std::uint8_t vector) {
      source_.causes_.push_back({host, vector, false});
      ++external_count;
    };
    for (; index < items_.size(); ++index) {
      const ReplayItem& item = items_[index];
      if (interrupt == nullptr)
        end_rip_ = item.kind == ReplayKind::action ? item.action.next_rip() : item.action.rip;
      if (item.kind == ReplayKind::host_interrupt) {
        external(true, 0);
      } else if (item.kind == ReplayKind::opaque) {
        ++source_.opaque_;
      } else if (item.kind == ReplayKind::interrupt) {
        // Its own causes lie behind ours in causes_, so ours must be settled first: give them to a step of
        // their own.
        if (!is_ipi(item.cause)) external(false, item.vector);
        if (external_count != 0) carry(steps, external_count, item.action.rip);
        const std::size_t slot = bodies_.size();
        bodies_.emplace_back().vector = item.vector;
        Steps body;
        ++index;
        lay_out(index, body, &item);
        bodies_[slot].steps = std::move(body);
      } else {
        ReplaySource::Step& step = steps.emplace_back();
        step.action = item.action;
        step.action.cycles = scale(item.action.cycles, workload_.tsc_hz, tsc_hz_);
        step.line = item.line;
        step.flags = item.flags;
        attach(step, external_count);
        if (item.action.kind == ActionKind::iret && interrupt != nullptr) {
          step.returns = true;
          return;
        }
      }
    }
    // The last interrupt of the stream needs a boundary at which it can still be taken.
    const bool interrupted_last = interrupt == nullptr && !items_.empty() &&
                                  items_.back().kind == ReplayKind::action &&
                                  items_.back().action.kind == ActionKind::iret && !bodies_.empty();
    if (external_count != 0 || interrupted_last) carry(steps, external_count, end_rip_);
    if (interrupt != nullptr) {
      // A file that a person cut may lack the iret.
      ReplaySource::Step& step = steps.emplace_back();
      step.action.kind = ActionKind::iret;
      step.action.length = default_length(ActionKind::iret, 0);
      step.returns = true;
    }
  }

  void attach(ReplaySource::Step& step, std::uint32_t& count) {
    step.external_count = count;
    step.external = static_cast<std::uint32_t>(source_.causes_.size()) - count;
    count = 0;
  }

  void carry(Steps& steps, std::uint32_t& count, std::uint64_t rip) {
    ReplaySource::Step& step = steps.emplace_back();
    step.action.kind = ActionKind::compute;
    step.action.rip = rip;
    attach(step, count);
  }

  ReplaySource& source_;
  const ReplayWorkload& workload_;
  const std::vector<ReplayItem>& items_;
  std::uint64_t tsc_hz_;
  std::uint64_t end_rip_ = 0;  ///< where the main stream stands
  Steps main_;
  std::vector<Body> bodies_;
};

ReplaySource::ReplaySource(const ReplayWorkload& workload, std::size_t vcpu_index, std::uint64_t tsc_hz)
    : kernel_(workload.kernel) {
  if (vcpu_index >= workload.vcpus.size()) {
    throw UserError(Problem{
        workload.source, 0, "vcpu",
        fmt::format("there is no vCPU {}: the workload has {}", vcpu_index, workload.vcpus.size()), ""});
  }
  const ReplayVcpu& vcpu = workload.vcpus[vcpu_index];
  initial_ = vcpu.initial;
  // A recording may begin long after its guest enabled the APIC; one that shows the write only repeats it.
  initial_.apic_svr = 0x1ff;
  for (const auto& [vector, entry] : vcpu.handler_entry)
    entries_[vector] = entry;
  [[maybe_unused]] const ReplayLayout layout(*this, workload, vcpu,
                                             tsc_hz == 0 ? workload.tsc_hz : tsc_hz);  // fills this object
  first_is_partial_ = current_is_partial();
}

void ReplaySource::interrupt(std::uint8_t vector, std::uint64_t tsc) {
  (void)tsc;
  ++interrupts_;
  frames_.push_back(position_);
  Handlers& handlers = handlers_[vector];
  if (handlers.begin.empty()) {
    if (unhandled_vector_ < 0) unhandled_vector_ = vector;
    // A fault would only come again after a bare return: the guest is lost.
    position_ = vector < 32 ? main_end_ : bare_return_;
    return;
  }
  if (handlers.next == handlers.begin.size()) {
    ++repeated_handlers_;
    position_ = handlers.begin.back();
    return;
  }
  position_ = handlers.begin[handlers.next++];
}

bool ReplaySource::take_host_interrupt() {
  const Step& step = steps_[position_];
  for (std::uint32_t i = step.external; i < step.external + step.external_count; ++i) {
    if (causes_[i].taken) continue;
    if (!causes_[i].host) return false;  // in the order of the recording
    causes_[i].taken = true;
    return true;
  }
  return false;
}

std::optional<std::uint8_t> ReplaySource::take_external_interrupt() {
  const Step& step = steps_[position_];
  for (std::uint32_t i = step.external; i < step.external + step.external_count; ++i) {
    if (causes_[i].taken) continue;
    if (causes_[i].host) return std::nullopt;
    causes_[i].taken = true;
    return causes_[i].vector;
  }
  return std::nullopt;
}

Metrics ReplaySource::metrics() const {
  return {{"actions", static_cast<double>(retired_)},
          {"interrupts", static_cast<double>(interrupts_)},
          {"repeated_handlers", static_cast<double>(repeated_handlers_)},
          {"opaque_exits_left_out", static_cast<double>(opaque_)}};
}

std::string ReplaySource::failure() const {
  if (unhandled_vector_ < 0) return {};
  return fmt::format("interrupt {:#x} arrived, of which the recording has no handler", unhandled_vector_);
}

std::unique_ptr<ReplaySource> make_replay(const ReplayWorkload& workload, std::size_t vcpu_index,
                                          std::uint64_t tsc_hz) {
  return std::make_unique<ReplaySource>(workload, vcpu_index, tsc_hz);
}

}  // namespace svmsim::workloads
