#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "svm/vmcb_dump/dump_parser.hpp"
#include "svm/vmcb_dump/vmcb_image.hpp"

namespace svmsim::svm {

namespace {

constexpr std::uintmax_t most_bytes = std::uintmax_t{512} << 20;

[[noreturn]] void refuse(const std::string& source, std::string message) {
  throw VmcbError(Problem{source, 0, "", std::move(message), ""});
}

bool begins_with(std::string_view bytes, std::string_view start) noexcept {
  return bytes.substr(0, start.size()) == start;
}

/// Files that people take for a VMCB or a log, by their first bytes.
std::string_view known_format(std::string_view bytes) noexcept {
  struct Magic {
    std::string_view start;
    std::string_view name;
  };
  using namespace std::string_view_literals;
  static constexpr std::array<Magic, 12> table{
      {{"\x7f"
        "ELF"sv,
        "an ELF file"},
       {"\x1f\x8b"sv, "compressed with gzip; decompress it first"},
       {"\xfd"
        "7zXZ\0"sv,
        "compressed with xz; decompress it first"},
       {"\x28\xb5\x2f\xfd"sv, "compressed with zstd; decompress it first"},
       {"BZh"sv, "compressed with bzip2; decompress it first"},
       {"PK\x03\x04"sv, "a zip archive"},
       {"LPKSHHRH"sv, "a systemd journal; write its text with journalctl -k"},
       {"\x89PNG"sv, "a picture"},
       {"\xff\xd8\xff"sv, "a picture"},
       {"%PDF"sv, "a PDF file"},
       {"\xff\xfe"sv, "UTF-16 text; convert it to UTF-8"},
       {"\xfe\xff"sv, "UTF-16 text; convert it to UTF-8"}}};
  for (const Magic& magic : table) {
    if (begins_with(bytes, magic.start)) return magic.name;
  }
  return {};
}

/// Text has no control characters but those of lines, tabs and colours; a log may have a stray NUL.
bool is_text(std::string_view bytes) noexcept {
  const auto bad = std::count_if(bytes.begin(), bytes.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code < 0x20 && std::strchr("\t\n\v\f\r\x1b", c) == nullptr;
  });
  const auto nuls = std::count(bytes.begin(), bytes.end(), '\0');
  return bad == nuls && static_cast<std::size_t>(nuls) * 64 <= bytes.size();
}

/// What makes a page that is cut short plausible: bytes that are always 0.
bool reserved_bytes_are_zero(std::string_view bytes) noexcept {
  const std::string_view reserved = bytes.substr(0x18, 36);
  return std::all_of(reserved.begin(), reserved.end(), [](char c) { return c == 0; });
}

VmcbImage page_image(std::string_view bytes, const std::string& source) {
  VmcbImage image;
  image.source = source;
  std::memcpy(&image.page, bytes.data(), bytes.size());
  for (const FieldInfo& info : dump_fields()) {
    const bool there = info.offset + info.bytes <= bytes.size();
    (there ? image.present : image.not_printed).set(index_of(info.field));
  }
  if (bytes.size() < sizeof(Vmcb))
    image.notes.push_back({0, fmt::format("the page ends after {} of {} bytes", bytes.size(), sizeof(Vmcb))});
  const std::uint64_t nested = image.page.control.nested_ctl;
  if ((nested & (1U << 2)) != 0) {
    image.guest_type = GuestType::sev_es;
    image.state_is_the_guests = false;
  } else if ((nested & (1U << 1)) != 0) {
    image.guest_type = GuestType::sev;
  }
  return image;
}

}  // namespace

VmcbImage image_of(const Vmcb& vmcb) {
  std::string bytes(sizeof(Vmcb), '\0');
  std::memcpy(bytes.data(), &vmcb, sizeof(Vmcb));
  return page_image(bytes, {});
}

VmcbImage parse_vmcb_image(std::string_view bytes, const std::string& source, std::size_t dump) {
  if (bytes.empty()) refuse(source, "is empty");
  const std::string_view format = known_format(bytes);
  if (!format.empty() && bytes.size() != sizeof(Vmcb))
    refuse(source, fmt::format("holds no VMCB: is {}", format));
  if (is_text(bytes)) {
    std::vector<VmcbImage> images = parse_kernel_dumps(bytes, source);
    if (images.empty())
      refuse(source, "has no VMCB dump of KVM; kvm_amd.dump_invalid_vmcb=1 makes the kernel print one");
    if (dump > images.size())
      refuse(source, fmt::format("has {} VMCB {}; there is no dump {}", images.size(),
                                 images.size() == 1 ? "dump" : "dumps", dump));
    VmcbImage image = std::move(images[dump == 0 ? 0 : dump - 1]);
    if (dump == 0 && image.dumps > 1)
      image.notes.insert(image.notes.begin(),
                         {0, fmt::format("the file has {} dumps, this is the first", image.dumps)});
    return image;
  }
  if (!format.empty() && begins_with(bytes,
                                     "\x7f"
                                     "ELF"))
    refuse(source, "holds no VMCB: is an ELF file");
  if (dump > 1) refuse(source, fmt::format("is a single VMCB page; there is no dump {}", dump));
  const bool whole = bytes.size() == sizeof(Vmcb);
  if (!whole && bytes.size() > sizeof(Vmcb))
    refuse(source, fmt::format("has {} bytes; a VMCB page has {}", bytes.size(), sizeof(Vmcb)));
  if (!whole && (bytes.size() < sizeof(VmcbControl) || !reserved_bytes_are_zero(bytes)))
    refuse(source,
           fmt::format("is neither a VMCB page of {} bytes nor a log with a VMCB dump of KVM", sizeof(Vmcb)));
  return page_image(bytes, source);
}

VmcbImage read_vmcb_image(const std::string& path, std::size_t dump) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) refuse(path, "cannot be read: no such file");
  if (std::filesystem::is_directory(status)) refuse(path, "cannot be read: is a directory");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "cannot be read");
  std::string bytes;
  std::array<char, 65536> buffer{};
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    bytes.append(buffer.data(), static_cast<std::size_t>(file.gcount()));
    if (bytes.size() > most_bytes) refuse(path, "is larger than 512 MiB; cut the part with the dump out");
  }
  if (file.bad()) refuse(path, "cannot be read");
  return parse_vmcb_image(bytes, path, dump);
}

}  // namespace svmsim::svm
