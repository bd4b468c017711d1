#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/features.hpp"
#include "svm/user_error.hpp"

using namespace svmsim::svm;

TEST_CASE("every SVM feature has its CPUID bit and its name") {
  const std::vector<std::pair<unsigned, std::string>> edx{
      {0, "np"},
      {1, "lbrv"},
      {2, "svm_lock"},
      {3, "nrips"},
      {4, "tsc_rate_msr"},
      {5, "vmcb_clean"},
      {6, "flush_by_asid"},
      {7, "decode_assists"},
      {8, "pmc_virt"},
      {10, "pause_filter"},
      {12, "pause_filter_threshold"},
      {13, "avic"},
      {15, "vls"},
      {16, "vgif"},
      {17, "gmet"},
      {18, "x2avic"},
      {19, "sss_check"},
      {20, "spec_ctrl"},
      {21, "rogpt"},
      {23, "host_mce_override"},
      {24, "tlbi_ctl"},
      {25, "vnmi"},
      {26, "ibs_virt"},
      {27, "ext_lvt_avic_access_chg"},
      {28, "nested_virt_vmcb_addr_chk"},
      {29, "bus_lock_threshold"},
      {30, "idle_hlt"},
  };
  for (const auto& row : edx) {
    const unsigned bit = row.first;
    const std::string& name = row.second;
    CAPTURE(name);
    const FeatureSet features = FeatureSet::from_cpuid({1, 0x8000, 0, std::uint32_t{1} << bit});
    CHECK(features.names() == std::vector<std::string>{name});
    REQUIRE(feature_of(name).has_value());
    CHECK(features.has(*feature_of(name)));
    CHECK(feature_name(*feature_of(name)) == name);
  }
  CHECK(FeatureSet::from_cpuid({1, 0, 1U << 6, 0}).names() == std::vector<std::string>{"x2avic_ext"});
  CHECK(all_features().size() == edx.size() + 1);
}

TEST_CASE("an unknown feature is no feature, and the nearest name helps") {
  CHECK_FALSE(feature_of("idlehlt").has_value());
  CHECK_FALSE(feature_of("").has_value());
  CHECK(svmsim::nearest_name("idlehlt", feature_names()) == "idle_hlt");
}

TEST_CASE("a feature set changes one feature at a time") {
  const FeatureSet set{Feature::np, Feature::vgif};
  CHECK(set.has(Feature::np));
  CHECK_FALSE(set.has(Feature::idle_hlt));
  CHECK(set.with(Feature::idle_hlt).has(Feature::idle_hlt));
  CHECK_FALSE(set.without(Feature::np).has(Feature::np));
  CHECK(set.without(Feature::np).has(Feature::vgif));
  CHECK(set.with(Feature::np) == set);
  CHECK(set.with(Feature::avic) != set);
}

TEST_CASE("instruction extensions are there unless taken away, and leave the SVM features alone") {
  const FeatureSet all;
  for (const ExtensionInfo& info : all_extensions()) {
    CAPTURE(info.name);
    CHECK(all.has(info.extension));
    const FeatureSet without = all.without(info.extension);
    CHECK_FALSE(without.has(info.extension));
    CHECK(without != all);
    CHECK(without.to_cpuid() == all.to_cpuid());
    for (const ExtensionInfo& other : all_extensions())
      CHECK(without.has(other.extension) == (other.extension != info.extension));
    REQUIRE(extension_of(info.name).has_value());
    CHECK(*extension_of(info.name) == info.extension);
    CHECK(extension_name(info.extension) == info.name);
    CHECK_FALSE(feature_of(info.name).has_value());
  }
  CHECK_FALSE(extension_of("rdtsc").has_value());
  CHECK(svmsim::nearest_name("rdtscq", extension_names()) == "rdtscp");
}

TEST_CASE("CPUID registers survive the way through a feature set, named bits or not") {
  CHECK(rc::check("registers", [](std::uint8_t eax, std::uint32_t ebx, std::uint32_t ecx, std::uint32_t edx) {
    const std::array<std::uint32_t, 4> registers{eax, ebx, ecx, edx};
    RC_ASSERT(FeatureSet::from_cpuid(registers).to_cpuid() == registers);
  }));
}
