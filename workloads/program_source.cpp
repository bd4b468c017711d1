#include "workloads/program_source.hpp"

#include <utility>

#include <fmt/format.h>

#include "svm/user_error.hpp"

namespace svmsim::workloads {

ProgramSource::ProgramSource(FlatProgram program, unsigned vcpu, std::shared_ptr<SharedCounters> memory)
    : program_(std::move(program)),
      memory_(memory != nullptr ? std::move(memory) : std::make_shared<SharedCounters>()),
      next_(program_.steps.data()),
      end_(step_at(program_.end)),
      batch_size_(program_.harnessed ? 0 : program_.iterations),
      harness_(program_.harness),
      watches_(program_.watches.size()),
      checked_(program_.checks.size()) {
  constexpr std::size_t usual_nesting = 16;
  frames_.reserve(usual_nesting);
  if (memory_->counters.size() < program_.counters) memory_->counters.resize(program_.counters);
  memory_->vcpus.push_back(vcpu);
}

void ProgramSource::retire_with_effects(const ProgramStep& step, std::uint64_t result) {
  // The effects that stand alone in almost every step of almost every iteration.
  switch (step.effects) {
    case step_effect::start_watch:
      watches_[step.watch].started = result;
      ++next_;
      break;
    case step_effect::stop_watch: {
      Stopwatch& watch = watches_[step.watch];
      watch.cycles += result - watch.started;
      ++watch.stops;
      ++next_;
      break;
    }
    case step_effect::end_iteration:
      end_iteration();
      break;
    case step_effect::handler_return:
      return_from_handler();
      break;
    default:
      retire_rare(step, result);
      break;
  }
}

void ProgramSource::retire_rare(const ProgramStep& step, std::uint64_t result) {
  namespace effect = step_effect;
  const std::uint32_t effects = step.effects;
  if ((effects & effect::repeat) != 0) {
    if (++repeated_ < step.repeat) return;
    repeated_ = 0;
  }
  ++next_;
  if ((effects & effect::pv_eoi) != 0 && pv_ != nullptr && std::exchange(pv_->eoi, false)) ++next_;
  if ((effects & effect::start_watch) != 0) watches_[step.watch].started = result;
  if ((effects & effect::stop_watch) != 0) {
    Stopwatch& watch = watches_[step.watch];
    watch.cycles += result - watch.started;
    ++watch.stops;
  }
  if ((effects & effect::leave_if_reached) != 0) {
    if (!reached(step)) return;
    next_ = step_at(step.target);
    if (step.target == program_.body_end) end_iteration();
    return;
  }
  if ((effects & effect::set_deadline) != 0)
    program_.steps[static_cast<std::size_t>(next_ - program_.steps.data())].action.operand[0] =
        result + step.count;
  if ((effects & effect::jump) != 0) next_ = step_at(step.target);
  if ((effects & effect::end_iteration) != 0) end_iteration();
  if ((effects & effect::begin_batch) != 0) {
    harness_.begin(result);
    batch_size_ = harness_.batch_size();
    batch_done_ = 0;
    for (Stopwatch& watch : watches_)
      watch = Stopwatch{};
  }
  if ((effects & effect::end_batch) != 0 && harness_.end(result)) next_ = step_at(step.target);
  if ((effects & effect::handler_return) != 0) return_from_handler();
}

bool ProgramSource::reached(const ProgramStep& step) const {
  const std::uint64_t count = step.per_iteration ? step.count * (iterations_ + 1) : step.count;
  const std::uint64_t now = step.counter < 0
                                ? handler_runs_[step.vector]
                                : memory_->counters[static_cast<std::size_t>(step.counter)].value;
  return now >= count;
}

std::uint64_t ProgramSource::spin_ready() const {
  const ProgramStep& step = *next_;
  if (!reached(step)) return never_ready;
  return step.counter < 0 ? 0 : memory_->counters[static_cast<std::size_t>(step.counter)].changed;
}

// Only `add` stores; the others that are shared look.
const std::vector<unsigned>& ProgramSource::retire_shared(std::uint64_t tsc) {
  static const std::vector<unsigned> none;
  const bool stores = (next_->effects & step_effect::add_counter) != 0;
  if (stores) {
    SharedCounters::Counter& counter = memory_->counters[static_cast<std::size_t>(next_->counter)];
    counter.value += next_->count;
    counter.changed = tsc;
  }
  retire(tsc, 0);
  return stores ? memory_->vcpus : none;
}

void ProgramSource::return_from_handler() {
  const Frame& frame = frames_.back();
  ++handler_runs_[frame.vector];
  next_ = frame.next;
  repeated_ = frame.repeated;
  frames_.pop_back();
}

void ProgramSource::end_iteration() {
  for (std::size_t i = 0; i < program_.checks.size(); ++i) {
    const FlatProgram::Check& check = program_.checks[i];
    const std::uint64_t total = handler_runs_[check.vector];
    const std::uint64_t runs = total - checked_[i];
    checked_[i] = total;
    if (runs != check.runs) {
      failed_runs_ = runs;
      expected_runs_ = check.runs;
      fail(Failure::handler_runs, check.vector);
      return;
    }
  }
  ++iterations_;
  next_ = step_at(++batch_done_ < batch_size_ ? program_.body_begin : program_.body_end);
}

void ProgramSource::interrupt(std::uint8_t vector, std::uint64_t tsc) {
  (void)tsc;
  const std::uint32_t first = program_.handler[vector];
  if (first == FlatProgram::no_handler) {
    fail(Failure::no_handler, vector);
    return;
  }
  frames_.push_back({next_, repeated_, vector});
  next_ = step_at(first);
  repeated_ = 0;
}

void ProgramSource::restart() {
  frames_.clear();
  next_ = failure_ == Failure::none ? program_.steps.data() : end_;
  repeated_ = 0;
  batch_done_ = 0;
  batch_size_ = program_.harnessed ? 0 : program_.iterations;
  harness_ = program_.harness;
}

void ProgramSource::fail(Failure kind, std::uint8_t vector) noexcept {
  // The first failure is the one to report; the guest stops there.
  if (failure_ == Failure::none) {
    failure_ = kind;
    failed_vector_ = vector;
  }
  frames_.clear();
  next_ = end_;
}

std::uint64_t ProgramSource::handler_entry(std::uint8_t vector) const {
  const std::uint32_t first = program_.handler[vector];
  return first == FlatProgram::no_handler ? 0 : step_at(first)->action.rip;
}

Metrics ProgramSource::metrics() const {
  Metrics result;
  const auto add = [&result](std::string name, std::uint64_t value) {
    result.emplace_back(std::move(name), static_cast<double>(value));
  };
  if (program_.body_begin == program_.body_end) return result;
  add("iterations", iterations_);
  if (program_.harnessed) {
    add("batches", harness_.batches());
    add("last_batch_iterations", harness_.last_batch_size());
    add("cycles_per_iteration", harness_.cycles_per_iteration());
  }
  for (std::size_t i = 0; i < watches_.size(); ++i) {
    const Stopwatch& watch = watches_[i];
    const double average =
        watch.stops == 0 ? 0.0 : static_cast<double>(watch.cycles) / static_cast<double>(watch.stops);
    result.emplace_back(program_.watches[i] + "_cycles", average);
  }
  return result;
}

std::string ProgramSource::failure() const {
  switch (failure_) {
    case Failure::none:
      return {};
    case Failure::handler_runs:
      return fmt::format("the handler of vector 0x{:x} ran {} times in iteration {}, not {}", failed_vector_,
                         failed_runs_, iterations_ + 1, expected_runs_);
    case Failure::no_handler:
      return fmt::format("vector 0x{:x} was delivered in iteration {}, but the program has no handler for it",
                         failed_vector_, iterations_ + 1);
  }
  return {};
}

}  // namespace svmsim::workloads
