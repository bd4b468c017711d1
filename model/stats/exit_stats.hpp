#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/units.hpp"
#include "svm/exit_code.hpp"

namespace svmsim::model {

/// What `perf kvm stat` keeps of one exit reason, and where the time went. Times in TSC cycles, from the time
/// stamp of kvm_exit to that of the next kvm_entry of the same thread.
struct ExitCounter {
  std::uint64_t count = 0;
  std::uint64_t time = 0;
  std::uint64_t min = ~std::uint64_t{0};
  std::uint64_t max = 0;
  Wide square_sum = 0;  ///< sum of the squared times
  // Parts of `time`; what is left is handling, with the recording of events.
  std::uint64_t polling = 0;   ///< the host's halt-polling loop
  std::uint64_t blocked = 0;   ///< the thread sleeps
  std::uint64_t runqueue = 0;  ///< it is runnable and waits for its pCPU
  std::uint64_t cstate = 0;    ///< its pCPU leaves an idle state

  [[nodiscard]] std::uint64_t handling() const noexcept {
    return time - polling - blocked - runqueue - cstate;
  }

  /// Both together, as the totals over vCPUs are.
  ExitCounter& operator+=(const ExitCounter& other) noexcept;

  /// perf's "+-": the standard error of the mean in percent of the mean.
  [[nodiscard]] double error_pct() const noexcept;
};

/// Exits of one vCPU thread, paired as `perf kvm stat` does (tools/perf/builtin-kvm.c): a kvm_exit opens, the
/// next kvm_entry closes. Exits before the first kvm_entry do not count, a second kvm_exit replaces the
/// first, and one that is still open at the end is not counted.
class ExitStats {
 public:
  /// One slot per row of svm::exit_table, and one for every other code.
  static constexpr std::size_t slots = svm::exit_count + 1;

  /// Slot of an exit code: intercepts first, then 400h to 403h, then -1 to -4.
  [[nodiscard]] static constexpr std::size_t slot_of(std::uint64_t code) noexcept {
    if (code < svm::intercept_count) return static_cast<std::size_t>(code);
    if (code - npf_code < npf_codes)
      return static_cast<std::size_t>(svm::intercept_count + (code - npf_code));
    if (~code < invalid_codes) return static_cast<std::size_t>(svm::intercept_count + npf_codes + ~code);
    return svm::exit_count;
  }

  /// Time stamp of kvm_exit.
  void exit(std::uint64_t code, std::uint64_t now) noexcept {
    if (!entered_) return;
    open_ = true;
    slot_ = slot_of(code);
    begin_ = now;
    parts_ = {};
    has_parts_ = false;
  }

  /// Time stamp of kvm_entry.
  void entry(std::uint64_t now) {
    entered_ = true;
    if (!open_) return;
    open_ = false;
    if (now < begin_) return;
    const std::uint64_t time = now - begin_;
    ExitCounter& counter = counter_of_slot(slot_);
    ++counter.count;
    counter.time += time;
    counter.min = std::min(counter.min, time);
    counter.max = std::max(counter.max, time);
    counter.square_sum += Wide{time} * time;
    if (has_parts_) add_parts(counter);
  }

  // Where the time of the open exit goes.
  void add_polling(std::uint64_t cycles) noexcept { add(parts_.polling, cycles); }
  void add_blocked(std::uint64_t cycles) noexcept { add(parts_.blocked, cycles); }
  void add_runqueue(std::uint64_t cycles) noexcept { add(parts_.runqueue, cycles); }
  void add_cstate(std::uint64_t cycles) noexcept { add(parts_.cstate, cycles); }

  /// End of the warm-up: forgets the counts. An exit that is open stays open and counts when it closes.
  void reset() noexcept {
    counters_.clear();
    index_.fill(0);
  }

  [[nodiscard]] ExitCounter counter(std::uint64_t code) const noexcept {
    const std::uint8_t index = index_[slot_of(code)];
    return index == 0 ? ExitCounter{} : counters_[index - 1U];
  }

  struct Row {
    std::uint64_t code = 0;  ///< unknown_code for all codes outside the table
    ExitCounter counter;
  };
  /// The reasons that occurred, in the order of the exit table.
  [[nodiscard]] std::vector<Row> rows() const;

  static constexpr std::uint64_t unknown_code =
      0x8000000000000000U;  ///< stands for all codes outside the table

 private:
  static constexpr std::uint64_t npf_code = svm::exit_code::npf;
  static constexpr std::uint64_t npf_codes = 4;
  static constexpr std::uint64_t invalid_codes = svm::exit_count - svm::intercept_count - npf_codes;

  struct Parts {
    std::uint64_t polling = 0;
    std::uint64_t blocked = 0;
    std::uint64_t runqueue = 0;
    std::uint64_t cstate = 0;
  };

  void add(std::uint64_t& part, std::uint64_t cycles) noexcept {
    part += cycles;
    has_parts_ = true;
  }
  void add_parts(ExitCounter& counter) const noexcept;

  [[nodiscard]] ExitCounter& counter_of_slot(std::size_t slot) {
    if (index_[slot] == 0) {
      counters_.emplace_back();
      index_[slot] = static_cast<std::uint8_t>(counters_.size());
    }
    return counters_[index_[slot] - 1U];
  }

  // A vCPU meets a dozen of the reasons: only those take memory.
  static_assert(slots < 255);
  std::array<std::uint8_t, slots> index_{};  // of counters_, + 1; 0 = has not occurred
  std::vector<ExitCounter> counters_;
  Parts parts_;
  std::uint64_t begin_ = 0;
  std::size_t slot_ = 0;
  bool entered_ = false;
  bool open_ = false;
  bool has_parts_ = false;
};

/// Name of a row as the kernel prints it; "unknown" for ExitStats::unknown_code.
[[nodiscard]] std::string exit_row_name(std::uint64_t code);

}  // namespace svmsim::model
