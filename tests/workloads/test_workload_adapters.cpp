#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "svm/user_error.hpp"
#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/workload_adapters.hpp"
#include "workloads/trace/workload_file.hpp"

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

ReplayWorkload read(const std::string& text) {
  std::istringstream in(text);
  return read_workload(in, "w");
}

std::string written(const ReplayWorkload& workload) {
  std::ostringstream out;
  write_workload(out, workload);
  return out.str();
}

const std::string two_vcpus =
    "svmsim-workload 1\n"
    "kernel 6.12\n"
    "tsc_hz 1000000000\n"
    "time nanoseconds\n"
    "vcpu 0 0\n"
    "initial rip=0x1000 if=0 gdt=0x0 idt=0x0 cs=8\n"
    "compute 1000\n"
    "wrmsr 0x830 0x1000000fd rip=0x1000 line=10\n"
    "sti\n"
    "hlt line=20\n"
    "interrupt 0xfd rip=0x1004 cause=ipi sender=1 line=21\n"
    "  compute 500\n"
    "  wrmsr 0x80b 0x0 rip=0x2000 line=22\n"
    "  iret inferred\n"
    "compute 2000\n"
    "cpuid 0x1 0x0 rip=0x1004 line=30\n"
    "end\n"
    "vcpu 0 1\n"
    "initial rip=0x5000 if=0 gdt=0x0 idt=0x0 cs=8\n"
    "compute 3000\n"
    "vmmcall 0x0 0x0 0x0 0x0 0x0 rip=0x5000 line=15\n"
    "end\n";

std::uint64_t work_of(const ReplayVcpu& vcpu) {
  std::uint64_t sum = 0;
  for (const ReplayItem& item : vcpu.items)
    sum += item.action.cycles;
  return sum;
}

}  // namespace

TEST_CASE("workload adapters: repeat does the work again, with the IF it begins with") {
  ReplayWorkload workload = read(two_vcpus);
  const std::uint64_t once = work_of(workload.vcpus[0]);
  repeat_workload(workload, 3);
  CHECK(work_of(workload.vcpus[0]) == 3 * once);
  const auto& items = workload.vcpus[0].items;
  CHECK(items.size() == 3 * 10 + 2 * 2);
  // The handler's return leaves IF on, and the workload begins with IF off.
  CHECK(items[10].action.kind == svm::ActionKind::cli);
  CHECK(items[10].has(replay_flag::inferred));
  CHECK(items[11].action.kind == svm::ActionKind::compute);
  CHECK(items[12].action.rip == 0x1000);
  // vCPU 1 never touches IF.
  CHECK(workload.vcpus[1].items.size() == 3 * 2 + 2);
  const ReplayWorkload again = read(written(workload));
  REQUIRE(again.vcpus.size() == 2);
  for (std::size_t i = 0; i < items.size(); ++i)
    CHECK(again.vcpus[0].items[i].action.rip == items[i].action.rip);
  CHECK_THROWS_AS(repeat_workload(workload, 0), UserError);
}

TEST_CASE("workload adapters: scale") {
  ReplayWorkload workload = read(two_vcpus);
  scale_workload(workload, 2.5);
  CHECK(work_of(workload.vcpus[0]) == 2500 + 1250 + 5000);
  CHECK(work_of(workload.vcpus[1]) == 7500);
  scale_workload(workload, 0.0);
  CHECK(work_of(workload.vcpus[0]) == 0);
  CHECK_THROWS_AS(scale_workload(workload, -1.0), UserError);
  CHECK_THROWS_AS(scale_workload(workload, std::numeric_limits<double>::quiet_NaN()), UserError);
  ReplayWorkload huge = read(two_vcpus);
  CHECK_THROWS_AS(scale_workload(huge, 1e18), UserError);
}

TEST_CASE("workload adapters: slice by line keeps handlers whole and knows IF") {
  ReplayWorkload workload = read(two_vcpus);
  WorkloadSlice slice;
  slice.from_line = 20;
  slice.to_line = 30;
  slice.vcpu = 0;
  slice_workload(workload, slice);
  REQUIRE(workload.vcpus.size() == 1);
  const ReplayVcpu& vcpu = workload.vcpus[0];
  CHECK(vcpu.initial.interrupts_enabled);  // behind the sti
  CHECK(vcpu.initial.rip == 0x1003);
  CHECK(vcpu.items.front().action.kind == svm::ActionKind::hlt);
  // hlt, the interrupt with its handler, and the work behind it up to line 30.
  CHECK(vcpu.items.size() == 6);
  CHECK(vcpu.items[1].kind == ReplayKind::interrupt);
  // Its sender is not kept.
  CHECK(vcpu.items[1].cause == InterruptCause::unknown);
  CHECK(vcpu.items[1].cause_vcpu == -1);
  CHECK(vcpu.items[4].action.kind == svm::ActionKind::iret);
  (void)read(written(workload));

  ReplayWorkload by_time = read(two_vcpus);
  WorkloadSlice tail;
  tail.from_ns = 1500;
  slice_workload(by_time, tail);
  // 1000 ns of work are over before the interrupt, 1500 after its handler.
  CHECK(by_time.vcpus[0].items.size() == 2);
  CHECK(by_time.vcpus[0].items[0].action.cycles == 2000);
  CHECK(by_time.vcpus[0].initial.rip == 0x1004);
  CHECK(by_time.vcpus[1].items.size() == 1);

  WorkloadSlice nothing;
  nothing.from_line = 1000;
  ReplayWorkload again = read(two_vcpus);
  CHECK_THROWS_AS(slice_workload(again, nothing), UserError);
  WorkloadSlice nobody;
  nobody.vcpu = 7;
  again = read(two_vcpus);
  CHECK_THROWS_AS(slice_workload(again, nobody), UserError);
}

TEST_CASE("workload adapters: merge puts VMs beside each other in one unit of time") {
  ReplayWorkload other = read(two_vcpus);
  other.tsc_hz = 2'000'000'000;
  const ReplayWorkload merged = merge_workloads({read(two_vcpus), other});
  REQUIRE(merged.vcpus.size() == 4);
  CHECK(merged.vcpus[2].vm == 1);
  CHECK(merged.vcpus[3].vcpu == 1);
  CHECK(2 * work_of(merged.vcpus[2]) == work_of(merged.vcpus[0]));
  other.kernel = KernelGeneration::v6_1;
  CHECK_THROWS_AS(static_cast<void>(merge_workloads({read(two_vcpus), other})), UserError);
  ReplayWorkload yes = read(two_vcpus);
  yes.idle_hlt = true;
  ReplayWorkload no = read(two_vcpus);
  no.idle_hlt = false;
  CHECK_THROWS_AS(static_cast<void>(merge_workloads({yes, no})), UserError);
}

TEST_CASE("workload adapters: files, packed by their names") {
  const auto directory = std::filesystem::temp_directory_path();
  const std::string stem = (directory / ("svmsim-adapt-" + std::to_string(std::random_device{}()))).string();
  write_workload_file(stem, read(two_vcpus));
  for (const char* suffix : {"", ".gz", ".zst"}) {
    CAPTURE(suffix);
    const std::string output = stem + ".out" + suffix;
    const auto summary =
        nlohmann::json::parse(adapt_workload_files({stem}, output, R"({"do": "repeat", "times": 100})"));
    CHECK(summary["vcpus"][0]["interrupts"]["ipi"] == 100);
    CHECK(summary["vcpus"][1]["guest_work_ns"] == 300'000);
    const ReplayWorkload back = read_workload_file(output);
    CHECK(back.vcpus[0].items.size() == 100 * 10 + 99 * 2);
    CHECK(is_workload_file(output));
    std::ifstream in(output, std::ios::binary);
    const int first = in.get();
    CHECK(first == (std::string{suffix} == ".gz" ? 0x1f : std::string{suffix} == ".zst" ? 0x28 : 's'));
    std::filesystem::remove(output);
  }
  CHECK_THROWS_AS(static_cast<void>(adapt_workload_files({stem}, "", R"({"do": "slice", "from": "soon"})")),
                  UserError);
  std::filesystem::remove(stem);
}
