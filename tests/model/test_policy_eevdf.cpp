// EEVDF of Linux 6.12, without a simulator: a hand-driven run queue.

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "model/policy/eevdf_queue.hpp"
#include "model/policy/fair_tree.hpp"
#include "model/policy/run_queue.hpp"

using namespace svmsim::model;

namespace {

constexpr std::uint64_t ms = 1000000;
constexpr std::uint64_t us = 1000;

SchedEntity& with_weight(SchedEntity& entity, int nice) {
  entity.weight = weight_of_nice(nice);
  return entity;
}

/// Two CPU-bound entities and a tick: who ran how long.
std::vector<std::uint64_t> shares(FairAlgorithm algorithm, const std::vector<int>& nices,
                                  std::uint64_t duration_ns) {
  SchedParameters parameters;
  RunQueue queue(algorithm, parameters);
  std::vector<SchedEntity> entities(nices.size());
  for (std::size_t i = 0; i < nices.size(); ++i)
    queue.enqueue(with_weight(entities[i], nices[i]), EnqueueKind::initial, 0);
  queue.pick(0);
  for (std::uint64_t now = 4 * ms; now <= duration_ns; now += 4 * ms) {
    queue.tick(now);
    if (queue.need_resched()) queue.pick(now);
  }
  std::vector<std::uint64_t> result;
  for (const SchedEntity& entity : entities)
    result.push_back(entity.sum_exec_ns);
  return result;
}

}  // namespace

TEST_CASE("the weight table: a step of nice is a factor of about 1.25, nice 0 is 1024") {
  CHECK(weight_of_nice(0) == 1024);
  CHECK(weight_of_nice(-20) == 88761);
  CHECK(weight_of_nice(19) == 15);
  for (int nice = -20; nice < 19; ++nice) {
    const double ratio = static_cast<double>(weight_of_nice(nice)) / weight_of_nice(nice + 1);
    CHECK(ratio > 1.15);
    CHECK(ratio < 1.35);
  }
}

TEST_CASE("the slice grows with the logarithm of the CPUs, up to eight") {
  CHECK(SchedParameters::factor(1) == 1);
  CHECK(SchedParameters::factor(2) == 2);
  CHECK(SchedParameters::factor(3) == 2);
  CHECK(SchedParameters::factor(4) == 3);
  CHECK(SchedParameters::factor(8) == 4);
  CHECK(SchedParameters::factor(128) == 4);
  CHECK(SchedParameters{}.base_slice_ns * SchedParameters::factor(8) == 2800 * us);
}

TEST_CASE("EEVDF: V is the weighted average, rounded down; lag decides who is eligible") {
  EevdfQueue queue{SchedParameters{}};
  SchedEntity a;
  SchedEntity b;
  with_weight(b, 5);  // 335
  unsigned dropped = 0;
  queue.enqueue(a, EnqueueKind::initial, 0);
  REQUIRE(queue.pick(0, dropped) == &a);
  queue.enqueue(b, EnqueueKind::wakeup, 1 * ms);
  CHECK(a.vruntime == 1000000);
  CHECK(b.vruntime == 1000000);  // placed at V, which a alone sets
  CHECK(queue.average_vruntime() == 1000000);
  queue.tick(2 * ms);
  CHECK(a.vruntime == 2000000);
  // (1024 * 2000000 + 335 * 1000000) / 1359
  CHECK(queue.average_vruntime() == 1753495);
  CHECK_FALSE(queue.eligible(a));
  CHECK(queue.eligible(b));
}

TEST_CASE("EEVDF: a new entity gets half a slice, a woken one a whole one") {
  EevdfQueue queue{SchedParameters{}};
  SchedEntity a;
  SchedEntity b;
  queue.enqueue(a, EnqueueKind::initial, 0);
  queue.enqueue(b, EnqueueKind::wakeup, 0);
  CHECK(a.deadline - a.vruntime == 350000);
  CHECK(b.deadline - b.vruntime == 700000);
  SchedEntity light;
  with_weight(light, 5);
  queue.enqueue(light, EnqueueKind::wakeup, 0);
  CHECK(light.deadline - light.vruntime == 700000 * 1024 / 335);
}

TEST_CASE("EEVDF: lag survives the sleep, scaled so that it is the same after joining") {
  EevdfQueue queue{SchedParameters{}};
  SchedEntity a;
  SchedEntity b;
  unsigned dropped = 0;
  queue.enqueue(a, EnqueueKind::initial, 0);
  queue.enqueue(b, EnqueueKind::initial, 0);
  SchedEntity* first = queue.pick(0, dropped);
  SchedEntity* other = first == &a ? &b : &a;
  // `first` runs 200 us; `other` is owed 100 us and leaves without having run: it keeps its lag.
  queue.tick(200 * us);
  queue.dequeue(*other, 200 * us);
  CHECK(other->vlag == 100000);
  other->deadline = 700000;
  queue.enqueue(*other, EnqueueKind::wakeup, 1000 * us);
  CHECK(queue.average_vruntime() - other->vruntime == 100000);
}

TEST_CASE("EEVDF: lag is bounded by two slices or a tick") {
  SchedParameters parameters;
  parameters.tick_ns = 1 * ms;
  EevdfQueue queue{parameters};
  SchedEntity a;
  SchedEntity b;
  unsigned dropped = 0;
  queue.enqueue(a, EnqueueKind::initial, 0);
  queue.enqueue(b, EnqueueKind::initial, 0);
  SchedEntity* first = queue.pick(0, dropped);
  SchedEntity* other = first == &a ? &b : &a;
  queue.dequeue(*other, 40 * ms);
  CHECK(other->vlag == 1400000);  // two slices of 700 us are more than the tick
}

TEST_CASE("EEVDF: RUN_TO_PARITY keeps the running entity until its slice ends or it loses eligibility") {
  EevdfQueue queue{SchedParameters{}};
  SchedEntity a;
  SchedEntity b;
  unsigned dropped = 0;
  queue.enqueue(a, EnqueueKind::wakeup, 0);
  REQUIRE(queue.pick(0, dropped) == &a);
  queue.tick(100 * us);
  queue.enqueue(b, EnqueueKind::wakeup, 100 * us);
  // b has the later deadline, a is still at V: no preemption.
  CHECK_FALSE(queue.wakeup_preempts(b, 100 * us));
  // A cycle later a is past V, so it is not eligible, and b is: a wake-up preempts it.
  CHECK(queue.wakeup_preempts(b, 101 * us));
}

TEST_CASE("EEVDF: an entity that sleeps with too much run time stays queued until it is picked") {
  SchedParameters parameters;
  RunQueue queue(FairAlgorithm::eevdf, parameters);
  SchedEntity a;
  SchedEntity b;
  queue.enqueue(a, EnqueueKind::wakeup, 0);
  REQUIRE(queue.pick(0) == &a);
  queue.enqueue(b, EnqueueKind::wakeup, 0);
  queue.sleep(a, 100 * us);  // it ran 100 us, b nothing: lag -50 us
  CHECK(a.delayed);
  CHECK(queue.nr_running() == 2);  // and it still counts, so that halt polling of b would stop
  REQUIRE(queue.pick(100 * us) == &b);
  SUBCASE("b runs past it: then it is picked, and taken off") {
    queue.tick(400 * us);
    CHECK(a.delayed);
    queue.sleep(b, 400 * us);
    CHECK(queue.pick(400 * us) == nullptr);
    CHECK_FALSE(a.on_rq);
    CHECK(a.vlag <= 0);
    CHECK(queue.nr_running() == 0);
  }
  SUBCASE("woken meanwhile, it simply competes again") {
    queue.enqueue(a, EnqueueKind::wakeup, 110 * us);
    CHECK_FALSE(a.delayed);
    CHECK(a.on_rq);
    CHECK(a.vruntime == 100000);  // not placed anew: it owes that time
    CHECK(queue.nr_running() == 2);
  }
}

TEST_CASE("EEVDF: yielding forfeits the rest of the slice and ends the protection") {
  EevdfQueue queue{SchedParameters{}};
  SchedEntity a;
  SchedEntity b;
  unsigned dropped = 0;
  queue.enqueue(a, EnqueueKind::wakeup, 0);
  queue.enqueue(b, EnqueueKind::wakeup, 0);
  REQUIRE(queue.pick(0, dropped) == &a);
  queue.yield(0);
  CHECK(a.vruntime == 700000);
  CHECK(a.deadline == 1400000);
  CHECK(queue.pick(0, dropped) == &b);
}

TEST_CASE("EEVDF: shares follow the weights") {
  const auto equal = shares(FairAlgorithm::eevdf, {0, 0}, 8000 * ms);
  CHECK(static_cast<double>(equal[0]) == doctest::Approx(static_cast<double>(equal[1])).epsilon(0.01));
  const auto weighted = shares(FairAlgorithm::eevdf, {0, 5, -3}, 20000 * ms);
  CHECK(static_cast<double>(weighted[0]) / static_cast<double>(weighted[1]) ==
        doctest::Approx(1024.0 / 335).epsilon(0.02));
  CHECK(static_cast<double>(weighted[2]) / static_cast<double>(weighted[0]) ==
        doctest::Approx(1991.0 / 1024).epsilon(0.02));
}

TEST_CASE("EEVDF picks what an exhaustive search picks") {
  CHECK(rc::check([] {
    const auto count = *rc::gen::inRange<std::size_t>(2, 40);
    EevdfQueue queue{SchedParameters{}};
    std::vector<SchedEntity> entities(count);
    std::uint64_t now = 0;
    unsigned dropped = 0;
    for (SchedEntity& entity : entities) {
      entity.weight = nice_weights[*rc::gen::inRange<std::size_t>(0, 40)];
      queue.enqueue(entity, EnqueueKind::initial, now);
    }
    for (int step = 0; step < 30; ++step) {
      SchedEntity* running = queue.pick(now, dropped);
      RC_ASSERT(running != nullptr);
      now += *rc::gen::inRange<std::uint64_t>(1, 3 * ms);
      queue.tick(now);
      const SchedEntity* best = nullptr;
      for (const SchedEntity& entity : entities) {
        if (!queue.eligible(entity)) continue;
        if (best == nullptr || entity.deadline < best->deadline) best = &entity;
      }
      RC_ASSERT(best != nullptr);
      const bool is_protected = queue.eligible(*running) && running->vlag == running->deadline;
      SchedEntity* next = queue.pick(now, dropped);
      if (is_protected) {
        RC_ASSERT(next == running);
      } else {
        RC_ASSERT(queue.eligible(*next));
        RC_ASSERT(next->deadline == best->deadline);
      }
    }
  }));
}

TEST_CASE("the tree keeps order and minima through any mixture of insertions and removals") {
  CHECK(rc::check([] {
    std::vector<SchedEntity> entities(64);
    std::vector<SchedEntity*> in;
    std::vector<SchedEntity*> out;
    for (SchedEntity& entity : entities)
      out.push_back(&entity);
    FairTree tree(&SchedEntity::deadline);
    for (int step = 0; step < 300; ++step) {
      if (!out.empty() && (in.empty() || *rc::gen::inRange(0, 2) == 0)) {
        SchedEntity* entity = out.back();
        out.pop_back();
        entity->deadline = *rc::gen::inRange<std::int64_t>(-20, 20);
        entity->vruntime = *rc::gen::inRange<std::int64_t>(-1000, 1000);
        tree.insert(*entity);
        in.push_back(entity);
      } else {
        const auto index = *rc::gen::inRange<std::size_t>(0, in.size());
        tree.erase(*in[index]);
        out.push_back(in[index]);
        in.erase(in.begin() + static_cast<std::ptrdiff_t>(index));
      }
      RC_ASSERT(tree.size() == in.size());
      if (in.empty()) continue;
      auto sorted = in;
      std::sort(sorted.begin(), sorted.end(), [](const SchedEntity* a, const SchedEntity* b) {
        return a->deadline != b->deadline ? a->deadline < b->deadline : a->order < b->order;
      });
      RC_ASSERT(tree.first() == sorted.front());
      RC_ASSERT(tree.last() == sorted.back());
      RC_ASSERT(tree.second() == (sorted.size() > 1 ? sorted[1] : nullptr));
      const auto least = std::min_element(
          in.begin(), in.end(),
          [](const SchedEntity* a, const SchedEntity* b) { return a->vruntime < b->vruntime; });
      RC_ASSERT(tree.root()->subtree_min_vruntime == (*least)->vruntime);
    }
  }));
}

TEST_CASE("CFS: shares follow the weights, and two threads of 2 CPUs change at every second tick") {
  const auto weighted = shares(FairAlgorithm::cfs, {0, 5}, 20000 * ms);
  CHECK(static_cast<double>(weighted[0]) / static_cast<double>(weighted[1]) ==
        doctest::Approx(1024.0 / 335).epsilon(0.05));
  // The real recording g4 of 6.1: 39 interrupts for 20 switches, slices of 12 ms / 2 under a tick of 4 ms.
  SchedParameters parameters;
  parameters.latency_ns *= 2;
  parameters.min_granularity_ns *= 2;
  parameters.wakeup_granularity_ns *= 2;
  RunQueue queue(FairAlgorithm::cfs, parameters);
  SchedEntity a;
  SchedEntity b;
  queue.enqueue(a, EnqueueKind::initial, 0);
  queue.enqueue(b, EnqueueKind::initial, 0);
  queue.pick(0);
  int switches = 0;
  for (int tick = 1; tick <= 40; ++tick) {
    queue.tick(static_cast<std::uint64_t>(tick) * 4 * ms);
    if (!queue.need_resched()) continue;
    ++switches;
    queue.pick(static_cast<std::uint64_t>(tick) * 4 * ms);
  }
  CHECK(switches == 20);
}

TEST_CASE("EEVDF: two threads of 2 CPUs change at every tick of 4 ms (recording g4 of 6.12)") {
  SchedParameters parameters;
  parameters.base_slice_ns *= 2;
  RunQueue queue(FairAlgorithm::eevdf, parameters);
  SchedEntity a;
  SchedEntity b;
  queue.enqueue(a, EnqueueKind::initial, 0);
  queue.enqueue(b, EnqueueKind::initial, 0);
  const SchedEntity* running = queue.pick(0);
  int switches = 0;
  for (int tick = 1; tick <= 40; ++tick) {
    queue.tick(static_cast<std::uint64_t>(tick) * 4 * ms);
    if (!queue.need_resched()) continue;
    const SchedEntity* next = queue.pick(static_cast<std::uint64_t>(tick) * 4 * ms);
    switches += next != running ? 1 : 0;
    running = next;
  }
  CHECK(switches == 40);
}

TEST_CASE("CFS: a sleeper is placed half a latency back and preempts beyond the wake-up granularity") {
  SchedParameters parameters;
  RunQueue queue(FairAlgorithm::cfs, parameters);
  SchedEntity a;
  SchedEntity b;
  queue.enqueue(a, EnqueueKind::initial, 0);
  queue.pick(0);
  queue.enqueue(b, EnqueueKind::initial, 0);
  queue.pick(10 * ms);
  REQUIRE(queue.current() == &b);
  queue.sleep(b, 11 * ms);
  REQUIRE(queue.pick(11 * ms) == &a);
  queue.enqueue(b, EnqueueKind::wakeup, 31 * ms);
  CHECK(b.vruntime == a.vruntime - 3000000);
  CHECK(queue.need_resched());
  // Back soon: it keeps its own run time, which is not behind enough.
  REQUIRE(queue.pick(31 * ms) == &b);
  queue.sleep(b, 33 * ms + 500 * us);
  REQUIRE(queue.pick(33 * ms + 500 * us) == &a);
  queue.enqueue(b, EnqueueKind::wakeup, 33 * ms + 600 * us);
  CHECK_FALSE(queue.need_resched());
}

TEST_CASE("CFS: next buddy is taken when that is fair, the one that yielded is passed over") {
  SchedParameters parameters;
  RunQueue queue(FairAlgorithm::cfs, parameters);
  std::vector<SchedEntity> entities(3);
  for (SchedEntity& entity : entities)
    queue.enqueue(entity, EnqueueKind::initial, 0);
  SchedEntity* running = queue.pick(0);
  SchedEntity* wanted = running == &entities[2] ? &entities[1] : &entities[2];
  CHECK(queue.boost(*wanted));
  queue.yield(1 * us);
  CHECK(queue.pick(1 * us) == wanted);
}

TEST_CASE("SCHED_FIFO: runs before every fair thread, by priority, in turn, until it sleeps") {
  RunQueue queue(FairAlgorithm::eevdf, SchedParameters{});
  SchedEntity fair;
  std::vector<SchedEntity> rt(3);
  for (SchedEntity& entity : rt)
    entity.policy = SchedPolicy::fifo;
  rt[0].rt_priority = 10;
  rt[1].rt_priority = 10;
  rt[2].rt_priority = 98;
  queue.enqueue(fair, EnqueueKind::initial, 0);
  REQUIRE(queue.pick(0) == &fair);
  queue.enqueue(rt[0], EnqueueKind::wakeup, 1);
  CHECK(queue.need_resched());
  REQUIRE(queue.pick(1) == &rt[0]);
  queue.enqueue(rt[1], EnqueueKind::wakeup, 2);
  CHECK_FALSE(queue.need_resched());  // equal priority waits
  queue.tick(40 * ms);
  CHECK_FALSE(queue.need_resched());  // and there is no slice
  queue.enqueue(rt[2], EnqueueKind::wakeup, 40 * ms);
  CHECK(queue.need_resched());
  REQUIRE(queue.pick(40 * ms) == &rt[2]);
  CHECK(queue.nr_running() == 4);
  queue.sleep(rt[2], 41 * ms);
  CHECK(queue.pick(41 * ms) == &rt[0]);  // the preempted one keeps its turn
  queue.sleep(rt[0], 42 * ms);
  CHECK(queue.pick(42 * ms) == &rt[1]);
  queue.sleep(rt[1], 43 * ms);
  CHECK(queue.pick(43 * ms) == &fair);
  CHECK(queue.nr_running() == 1);
}

TEST_CASE("SCHED_IDLE is preempted by every other thread at wake-up, SCHED_BATCH preempts nobody") {
  for (const FairAlgorithm algorithm : {FairAlgorithm::cfs, FairAlgorithm::eevdf}) {
    RunQueue queue(algorithm, SchedParameters{});
    SchedEntity idle;
    idle.policy = SchedPolicy::idle;
    idle.weight = idle_policy_weight;
    SchedEntity other;
    SchedEntity batch;
    batch.policy = SchedPolicy::batch;
    queue.enqueue(idle, EnqueueKind::wakeup, 0);
    queue.pick(0);
    queue.enqueue(other, EnqueueKind::wakeup, 10);
    CHECK(queue.need_resched());
    REQUIRE(queue.pick(10) == &other);
    queue.enqueue(batch, EnqueueKind::wakeup, 3 * ms);
    CHECK((!queue.need_resched() || algorithm == FairAlgorithm::eevdf));
  }
}

TEST_CASE("a thread that wakes between its sleep and the next pick is queued once") {
  for (const FairAlgorithm algorithm : {FairAlgorithm::cfs, FairAlgorithm::eevdf}) {
    RunQueue queue(algorithm, SchedParameters{});
    SchedEntity a;
    SchedEntity b;
    queue.enqueue(a, EnqueueKind::wakeup, 0);
    queue.pick(0);
    queue.enqueue(b, EnqueueKind::wakeup, 0);
    queue.sleep(a, 50 * us);
    queue.enqueue(a, EnqueueKind::wakeup, 51 * us);
    CHECK(queue.nr_running() == 2);
    const SchedEntity* first = queue.pick(52 * us);
    queue.remove(const_cast<SchedEntity&>(*first), 60 * us);
    const SchedEntity* second = queue.pick(60 * us);
    CHECK(first != second);
    queue.remove(const_cast<SchedEntity&>(*second), 70 * us);
    CHECK(queue.pick(70 * us) == nullptr);
    CHECK(queue.nr_running() == 0);
  }
}

namespace {

/// The threads of recording d4 as their run queue sees them: each sends an IPI and halts until the other
/// one's comes. Times in ns between what the queue is told, of the lab (one instruction = 1 ns).
struct PingPong {
  struct Thread {
    SchedEntity entity;
    bool sends = false;  // else it halts next
    bool blocked = false;
    bool pending = false;
    bool was_asleep = false;
    std::uint64_t received = 0;
    std::uint64_t preempted = 0;  // = vintr exits: its HLT then finds the interrupt pending
    std::uint64_t slept = 0;
  };

  static SchedParameters parameters() {
    SchedParameters result;
    const std::uint64_t factor = SchedParameters::factor(2);
    result.base_slice_ns *= factor;
    result.latency_ns *= factor;
    result.min_granularity_ns *= factor;
    result.wakeup_granularity_ns *= factor;
    return result;
  }

  explicit PingPong(FairAlgorithm algorithm) : queue(algorithm, parameters()) {
    threads[0].sends = true;
    queue.enqueue(threads[1].entity, EnqueueKind::initial, 0);
    queue.enqueue(threads[0].entity, EnqueueKind::initial, 0);
    current = queue.pick(0);
  }

  void switch_to_next() {
    SchedEntity* next = queue.pick(now);
    if (next != current) now += 1500;
    current = next;
  }

  void run(std::uint64_t rounds) {
    constexpr std::uint64_t tick = 4000 * us;
    std::uint64_t next_tick = tick;
    while (threads[0].received < rounds) {
      const std::size_t index = current == &threads[0].entity ? 0 : 1;
      Thread& self = threads[index];
      Thread& other = threads[1 - index];
      for (; next_tick <= now; next_tick += tick) {
        queue.tick(next_tick);
        now += 3000;
      }
      if (queue.need_resched()) {
        const SchedEntity* before = current;
        switch_to_next();
        if (current != before) ++self.preempted;
      } else if (self.sends) {
        self.sends = false;
        now += 1489;
        other.pending = true;
        if (other.blocked) {
          other.blocked = false;
          queue.enqueue(other.entity, EnqueueKind::wakeup, now);
          now += 900;
        }
      } else if (self.pending) {  // by the HLT exit, the window and the injection, or out of the block
        self.pending = false;
        now += std::exchange(self.was_asleep, false) ? 900U : 1138U + 2069U;
        now += 1879;
        ++self.received;
        self.sends = true;
      } else {
        now += 778 + 217 + 400 + 2200;
        queue.sleep(self.entity, now);
        self.blocked = true;
        self.was_asleep = true;
        ++self.slept;
        switch_to_next();
      }
    }
  }

  RunQueue queue;
  Thread threads[2];
  SchedEntity* current;
  std::uint64_t now = 0;
};

}  // namespace

TEST_CASE("EEVDF: recording d4: under 6.12 nearly every other wake-up preempts, on both sides") {
  PingPong game(FairAlgorithm::eevdf);
  game.run(500);
  // Without tracing: vintr exits 230 and 220, polls attempted 269 and 279 of 500.
  CHECK(static_cast<double>(game.threads[0].preempted) == doctest::Approx(230).epsilon(0.05));
  CHECK(static_cast<double>(game.threads[1].preempted) == doctest::Approx(220).epsilon(0.05));
  CHECK(game.threads[0].preempted + game.threads[0].slept >= 498);
}

TEST_CASE("CFS: recording d4: under 6.1 one side is preempted at every wake-up, the other never") {
  PingPong game(FairAlgorithm::cfs);
  game.run(500);
  const auto [least, most] = std::minmax(game.threads[0].preempted, game.threads[1].preempted);
  CHECK(least == 0);
  CHECK(most >= 499);
}
