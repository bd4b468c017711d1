#include "svm/instruction_rules.hpp"

#include <array>
#include <cstddef>

namespace svmsim::svm {

namespace {

using K = ActionKind;
using I = Intercept;
using E = Extension;

constexpr std::uint32_t table_write_checks = check::gp_user;
constexpr std::uint32_t selector_checks = check::ud_real;
constexpr std::uint32_t svm_checks = check::ud_svme | check::ud_real | check::gp_user;

// Order of table 15-7. "all exceptions first" leaves `after` empty.
constexpr std::array rules{
    InstructionRule{K::rdtscp, check::ud_extension | check::gp_user_tsd, I::rdtscp, 0, E::rdtscp, {}},
    InstructionRule{K::rdpmc, check::gp_user_pce | check::gp_operand, I::rdpmc, 0, {}, {}},
    InstructionRule{K::rdpru, check::ud_extension | check::ud_user_tsd, I::rdpru, 0, E::rdpru, {}},
    InstructionRule{K::invlpg, check::gp_user, I::invlpg, 0, {}, {}},
    InstructionRule{K::invlpga, svm_checks, I::invlpga, 0, {}, {}},
    InstructionRule{
        K::monitor, check::ud_extension | check::ud_user | check::gp_operand, I::monitor, 0, E::monitor, {}},
    InstructionRule{K::monitorx, check::ud_extension | check::gp_operand, I::monitor, 0, E::monitorx, {}},

    // Descriptor tables: after #UD and #GP, before the memory access.
    InstructionRule{K::sidt, check::gp_user_umip, I::idtr_read, 0, {}, {}},
    InstructionRule{K::sgdt, check::gp_user_umip, I::gdtr_read, 0, {}, {}},
    InstructionRule{K::sldt, selector_checks | check::gp_user_umip, I::ldtr_read, 0, {}, {}},
    InstructionRule{K::str, selector_checks | check::gp_user_umip, I::tr_read, 0, {}, {}},
    InstructionRule{K::lidt, table_write_checks, I::idtr_write, 0, {}, {}},
    InstructionRule{K::lgdt, table_write_checks, I::gdtr_write, 0, {}, {}},
    InstructionRule{K::lldt, selector_checks | check::gp_user, I::ldtr_write, 0, {}, {}},
    InstructionRule{K::ltr, selector_checks | check::gp_user, I::tr_write, 0, {}, {}},

    // The intercept comes before any exception.
    InstructionRule{K::pushf, 0, I::pushf, check::gp_v86_iopl, {}, {}},
    InstructionRule{K::popf, 0, I::popf, check::gp_v86_iopl, {}, {}},
    InstructionRule{K::rsm, 0, I::rsm, check::ud_always, {}, {}},

    // The intercept comes before #GP.
    InstructionRule{K::xsetbv,
                    check::ud_extension | check::ud_osxsave,
                    I::xsetbv,
                    check::gp_user | check::gp_operand,
                    E::xsave,
                    {}},

    // #GP comes before the intercept.
    InstructionRule{K::invd, check::gp_user, I::invd, 0, {}, {}},
    InstructionRule{K::wbinvd, check::gp_user, I::wbinvd, 0, {}, {}},
    // Where WBNOINVD does not exist, its prefix is ignored: it is WBINVD.
    InstructionRule{K::wbnoinvd, check::gp_user, I::wbinvd, 0, {}, {}},
    InstructionRule{K::stgi, check::ud_svme_or_skinit | check::ud_real | check::gp_user, I::stgi, 0, {}, {}},
    InstructionRule{K::clgi, svm_checks, I::clgi, 0, {}, {}},
    InstructionRule{
        K::skinit, check::ud_svme_or_skinit | check::ud_real | check::gp_user, I::skinit, 0, {}, {}},
    InstructionRule{K::tlbsync, check::ud_extension | check::gp_user, I::tlbsync, check::ud_not_enabled,
                    E::invlpgb, Feature::tlbi_ctl},

    // The intercept comes before all exceptions but #GP for CPL > 0.
    InstructionRule{
        K::invpcid, check::ud_extension | check::gp_user, I::invpcid, check::gp_operand, E::invpcid, {}},
    InstructionRule{
        K::invlpgb, check::ud_extension | check::gp_user, I::invlpgb, check::ud_not_enabled, E::invlpgb, {}},

    InstructionRule{K::mcommit, check::ud_extension | check::ud_mcommit, I::mcommit, 0, E::mcommit, {}},
};

constexpr std::size_t kinds = static_cast<std::size_t>(ActionKind::vmgexit) + 1;
constexpr std::uint8_t no_rule = 0xff;

constexpr std::array<std::uint8_t, kinds> make_index() {
  std::array<std::uint8_t, kinds> index{};
  for (std::uint8_t& slot : index)
    slot = no_rule;
  for (std::size_t i = 0; i < rules.size(); ++i)
    index[static_cast<std::size_t>(rules[i].kind)] = static_cast<std::uint8_t>(i);
  return index;
}

constexpr std::array<std::uint8_t, kinds> rule_index = make_index();

}  // namespace

const InstructionRule* instruction_rule(ActionKind kind) noexcept {
  const auto position = static_cast<std::size_t>(kind);
  if (position >= kinds || rule_index[position] == no_rule) return nullptr;
  return &rules[rule_index[position]];
}

}  // namespace svmsim::svm
