#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "svm/user_error.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmcb_dump/dump_fields.hpp"

namespace svmsim::svm {

/// A file holds no VMCB that can be read.
class VmcbError : public UserError {
 public:
  using UserError::UserError;
};

enum class ImageKind : std::uint8_t { page, kernel_dump };

/// Kind of guest, as newer kernels print it and nested_ctl tells otherwise.
enum class GuestType : std::uint8_t { unknown, svm, sev, sev_es, sev_snp };
[[nodiscard]] std::string_view guest_type_name(GuestType type) noexcept;

/// Something about the file that a reader of the report should know.
struct ImageNote {
  std::size_t line = 0;  ///< 1-based; 0 when it is about no line
  std::string text;
};

/// A VMCB as far as a file has it: a raw page, or one dump in a kernel log.
struct VmcbImage {
  ImageKind kind = ImageKind::page;
  std::string source;  ///< file name
  Vmcb page{};         ///< fields that are not in `present` are 0
  FieldSet present;
  FieldSet lost;         ///< the kernel printed them, but their lines are missing or damaged
  FieldSet not_printed;  ///< this kernel does not print them, or the page ends before them

  std::size_t dump = 1;   ///< which dump of the file this is, 1-based
  std::size_t dumps = 1;  ///< how many the file has
  std::size_t first_line = 0;
  std::size_t last_line = 0;

  GuestType guest_type = GuestType::unknown;
  std::optional<unsigned> vcpu;
  std::optional<unsigned> last_cpu;  ///< logical processor of the last VMRUN
  std::string address;               ///< of the VMCB, as printed: often a hashed pointer
  /// The guest state is the VMCB's own save area, or a decrypted VMSA. Not so for an SEV-ES guest whose
  /// VMSA nobody could read: the processor never looks at the save area that is shown then.
  bool state_is_the_guests = true;
  std::optional<std::uint64_t> vmsa_sev_features;                     ///< SEV_FEATURES, VMSA 3B0h
  std::vector<std::pair<std::string, std::uint64_t>> more_registers;  ///< general registers and the like
  std::vector<ImageNote> notes;

  [[nodiscard]] bool has(Field field) const noexcept { return present[index_of(field)]; }
};

/// Reads a VMCB out of the contents of a file: a 4 KiB page, or the output of dump_vmcb in a kernel log, of
/// Linux 4.4 and later. `dump` chooses one of several dumps, from 1; 0 takes the first and notes that there
/// are more. A page that is cut short is read as far as it goes, when it has at least the control area.
///
/// In a log, these are put up with: time stamps, host names, levels and caller IDs before a line, mail
/// quotes, quoted-printable, colours, CRLF, lines that a mailer has folded, other messages between the lines,
/// the lines of two vCPUs mixed (with caller IDs), missing lines and cut values.
///
/// Throws VmcbError naming `source`.
[[nodiscard]] VmcbImage parse_vmcb_image(std::string_view bytes, const std::string& source,
                                         std::size_t dump = 0);

/// Reads the file first. Throws VmcbError when that fails.
[[nodiscard]] VmcbImage read_vmcb_image(const std::string& path, std::size_t dump = 0);

/// A page in memory, all of it present.
[[nodiscard]] VmcbImage image_of(const Vmcb& vmcb);

}  // namespace svmsim::svm
