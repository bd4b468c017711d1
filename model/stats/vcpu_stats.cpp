#include "model/stats/vcpu_stats.hpp"

namespace svmsim::model {

const std::vector<VcpuStatInfo>& vcpu_stat_table() {
  static const std::vector<VcpuStatInfo> table{
#define SVMSIM_ROW(name, unit, doc) VcpuStatInfo{#name, unit, doc, &VcpuStats::name, nullptr},
      SVMSIM_VCPU_COUNTERS(SVMSIM_ROW)
#undef SVMSIM_ROW
#define SVMSIM_ROW(name, unit, doc) VcpuStatInfo{#name, unit, doc, nullptr, &VcpuStats::name},
          SVMSIM_VCPU_HISTOGRAMS(SVMSIM_ROW)
#undef SVMSIM_ROW
  };
  return table;
}

}  // namespace svmsim::model
