#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace svmsim::svm {

/// SVM features of CPUID Fn8000_000A (APM vol. 3, E.4.9). The value is the bit number, EDX first: EDX bit n
/// is n, ECX bit n is 32 + n.
enum class Feature : std::uint8_t {
  np = 0,
  lbrv = 1,
  svm_lock = 2,
  nrips = 3,
  tsc_rate_msr = 4,
  vmcb_clean = 5,
  flush_by_asid = 6,
  decode_assists = 7,
  pmc_virt = 8,
  pause_filter = 10,
  pause_filter_threshold = 12,
  avic = 13,
  vls = 15,
  vgif = 16,
  gmet = 17,
  x2avic = 18,
  sss_check = 19,
  spec_ctrl = 20,
  rogpt = 21,
  host_mce_override = 23,
  tlbi_ctl = 24,
  vnmi = 25,
  ibs_virt = 26,
  ext_lvt_avic_access_chg = 27,
  nested_virt_vmcb_addr_chk = 28,
  bus_lock_threshold = 29,
  idle_hlt = 30,
  x2avic_ext = 32 + 6,
};

struct FeatureInfo {
  Feature feature;
  std::string_view name;     ///< snake_case, as in the enumeration
  std::string_view meaning;  ///< one sentence
};

/// All features, in the order of their CPUID bits.
[[nodiscard]] const std::vector<FeatureInfo>& all_features();
[[nodiscard]] std::string_view feature_name(Feature feature);
/// The feature of that name, or nothing; nearest_name(name, feature_names()) is what the user meant.
[[nodiscard]] std::optional<Feature> feature_of(std::string_view name);
[[nodiscard]] std::vector<std::string> feature_names();

/// CPUID bits outside of Fn8000_000A on which instructions depend that SVM can intercept. A processor has all
/// of them unless it says otherwise.
enum class Extension : std::uint8_t {
  monitor,   ///< Fn0000_0001_ECX[3]
  xsave,     ///< Fn0000_0001_ECX[26]
  invpcid,   ///< Fn0000_0007_EBX[10]
  umip,      ///< Fn0000_0007_ECX[2]
  skinit,    ///< Fn8000_0001_ECX[12]
  monitorx,  ///< Fn8000_0001_ECX[29]
  rdtscp,    ///< Fn8000_0001_EDX[27]
  invlpgb,   ///< Fn8000_0008_EBX[3]
  rdpru,     ///< Fn8000_0008_EBX[4]
  mcommit,   ///< Fn8000_0008_EBX[8]
};

struct ExtensionInfo {
  Extension extension;
  std::string_view name;     ///< snake_case, as in the enumeration
  std::string_view cpuid;    ///< "Fn8000_0001_EDX[27]"
  std::string_view meaning;  ///< one sentence
};

/// All extensions, in the order of Extension.
[[nodiscard]] const std::vector<ExtensionInfo>& all_extensions();
[[nodiscard]] std::string_view extension_name(Extension extension);
/// The extension of that name, or nothing.
[[nodiscard]] std::optional<Extension> extension_of(std::string_view name);
[[nodiscard]] std::vector<std::string> extension_names();

/// What CPUID says of one processor as far as SVM is concerned: the features of Fn8000_000A, its SVM revision
/// and number of ASIDs, and the instructions that exist.
class FeatureSet {
 public:
  constexpr FeatureSet() = default;
  constexpr FeatureSet(std::initializer_list<Feature> features) {
    for (const Feature feature : features)
      set(feature);
  }

  [[nodiscard]] constexpr bool has(Feature feature) const noexcept { return (bits_ & bit(feature)) != 0; }
  constexpr void set(Feature feature, bool present = true) noexcept {
    bits_ = present ? bits_ | bit(feature) : bits_ & ~bit(feature);
  }
  [[nodiscard]] constexpr FeatureSet with(Feature feature) const noexcept {
    FeatureSet result = *this;
    result.set(feature);
    return result;
  }
  [[nodiscard]] constexpr FeatureSet without(Feature feature) const noexcept {
    FeatureSet result = *this;
    result.set(feature, false);
    return result;
  }

  [[nodiscard]] constexpr bool has(Extension extension) const noexcept {
    return (missing_extensions_ & bit(extension)) == 0;
  }
  constexpr void set(Extension extension, bool present = true) noexcept {
    missing_extensions_ = static_cast<std::uint16_t>(present ? missing_extensions_ & ~bit(extension)
                                                             : missing_extensions_ | bit(extension));
  }
  [[nodiscard]] constexpr FeatureSet without(Extension extension) const noexcept {
    FeatureSet result = *this;
    result.set(extension, false);
    return result;
  }

  /// From EAX, EBX, ECX, EDX of Fn8000_000A; bits that have no name here are kept.
  [[nodiscard]] static constexpr FeatureSet from_cpuid(
      const std::array<std::uint32_t, 4>& registers) noexcept {
    FeatureSet result;
    result.revision_ = static_cast<std::uint8_t>(registers[0] & 0xffU);
    result.asids_ = registers[1];
    result.bits_ = (std::uint64_t{registers[2]} << 32) | registers[3];
    return result;
  }
  /// EAX, EBX, ECX, EDX of Fn8000_000A.
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> to_cpuid() const noexcept {
    return {revision_, asids_, static_cast<std::uint32_t>(bits_ >> 32),
            static_cast<std::uint32_t>(bits_ & 0xffffffffU)};
  }

  [[nodiscard]] constexpr std::uint8_t revision() const noexcept { return revision_; }
  [[nodiscard]] constexpr std::uint32_t asids() const noexcept { return asids_; }
  [[nodiscard]] std::vector<std::string> names() const;

  [[nodiscard]] friend constexpr bool operator==(const FeatureSet& a, const FeatureSet& b) noexcept {
    return a.bits_ == b.bits_ && a.revision_ == b.revision_ && a.asids_ == b.asids_ &&
           a.missing_extensions_ == b.missing_extensions_;
  }
  [[nodiscard]] friend constexpr bool operator!=(const FeatureSet& a, const FeatureSet& b) noexcept {
    return !(a == b);
  }

 private:
  [[nodiscard]] static constexpr std::uint64_t bit(Feature feature) noexcept {
    return std::uint64_t{1} << static_cast<unsigned>(feature);
  }

  [[nodiscard]] static constexpr unsigned bit(Extension extension) noexcept {
    return 1U << static_cast<unsigned>(extension);
  }

  std::uint64_t bits_ = 0;
  std::uint32_t asids_ = 0x8000;
  std::uint16_t missing_extensions_ = 0;
  std::uint8_t revision_ = 1;
};

}  // namespace svmsim::svm
