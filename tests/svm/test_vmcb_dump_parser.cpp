#include <algorithm>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/vmcb_dump/dump_parser.hpp"
#include "svm/vmcb_dump/log_text.hpp"
#include "svm/vmcb_fields.hpp"
#include "tests/svm/vmcb_dump_fixture.hpp"

using namespace svmsim;
using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

VmcbImage image_of_text(const std::string& text, std::size_t dump = 0) {
  return parse_vmcb_image(text, "log.txt", dump);
}

std::string problem_of(const std::string& bytes, std::size_t dump = 0) {
  try {
    (void)parse_vmcb_image(bytes, "file", dump);
  } catch (const VmcbError& error) {
    REQUIRE(error.problems().size() == 1);
    return error.what();
  }
  return "no error";
}

bool has_note(const VmcbImage& image, const std::string& part) {
  return std::any_of(image.notes.begin(), image.notes.end(),
                     [&](const ImageNote& note) { return note.text.find(part) != std::string::npos; });
}

/// All that a dump of 6.18 prints.
FieldSet printed_fields() {
  FieldSet fields;
  for (const FieldInfo& info : dump_fields())
    fields[index_of(info.field)] = info.vintage <= DumpVintage::v6_18;
  return fields;
}

void check_same_fields(const Vmcb& one, const Vmcb& other) {
  for (const FieldInfo& info : dump_fields()) {
    if (info.vintage > DumpVintage::v6_18) continue;
    CAPTURE(info.name);
    CHECK(read_field(one, info.field) == read_field(other, info.field));
  }
}

Vmcb random_vmcb() {
  Vmcb vmcb{};
  for (const FieldInfo& info : dump_fields())
    write_field(vmcb, info.field, *rc::gen::arbitrary<std::uint64_t>());
  vmcb.control.exit_code =
      *rc::gen::element<std::uint64_t>(0x78, 0x400, ~std::uint64_t{0}, ~std::uint64_t{3});
  vmcb.control.nested_ctl &= ~std::uint64_t{4};
  return vmcb;
}

}  // namespace

TEST_CASE("the fields of dumps are the fields of the VMCB") {
  for (const FieldInfo& info : dump_fields()) {
    CAPTURE(info.name);
    const VmcbField* field = find_vmcb_field(info.name);
    if (info.group == FieldGroup::intercepts) {
      CHECK(info.offset < 0x18);
    } else if (info.bytes <= 8) {
      REQUIRE(field != nullptr);
      CHECK(field->offset == info.offset);
      CHECK(field->size == info.bytes);
    }
  }
  for (const VmcbField& field : all_vmcb_fields()) {
    CAPTURE(field.name);
    const bool there = std::any_of(dump_fields().begin(), dump_fields().end(), [&](const FieldInfo& info) {
      return info.offset <= field.offset && field.offset < info.offset + std::max<std::size_t>(info.bytes, 4);
    });
    CHECK(there);
  }
}

TEST_CASE("a log with any usual prefix, line end and mail quotes gives all fields") {
  const Vmcb vmcb = kvm_vmcb();
  const std::vector<std::string> lines = dump_lines(vmcb);
  for (const char* prefix :
       {"", "[47175.214140] SVM: ", "[    1.000000][ T1234] kvm_amd: ", "Nov 30 17:04:05 host7 kernel: SVM: ",
        "Nov 30 17:04:05 host7 kernel: [ 12.345678] kvm_amd: ",
        "2025-11-30T17:04:05.123456+01:00 host kernel: kvm_amd: ", "<3>[   12.345678] SVM: ",
        "kern  :err   : [Sun Nov 30 17:04:05 2025] kvm_amd: ", "[Nov30 17:04] ", "[  +0.000005] ",
        "> > [  12.345] SVM: ", "> ", "\t", "| [  1.0] SVM: ", "host\tkernel\tSVM: ",
        "\x1b[31m[ 1.0]\x1b[0m \x1b[33mkvm_amd: \x1b[0m", "\xc2\xa0\xc2\xa0[  1.0] SVM: "}) {
    for (const char* end : {"\n", "\r\n", "\r"}) {
      CAPTURE(prefix);
      const VmcbImage image = image_of_text(joined(lines, prefix, end));
      CHECK(image.present == printed_fields());
      CHECK(image.lost.none());
      CHECK(image.notes.empty());
      CHECK(image.vcpu == 2U);
      CHECK(image.last_cpu == 5U);
      CHECK(image.address == "00000000deadbee0");
      CHECK(image.guest_type == GuestType::svm);
      CHECK(image.kind == ImageKind::kernel_dump);
      check_same_fields(image.page, vmcb);
    }
  }
}

TEST_CASE("other messages between the lines are no part of the dump") {
  std::vector<std::string> lines = dump_lines(kvm_vmcb());
  for (std::size_t i = lines.size(); i > 0; --i)
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(i),
                 "br0: port 2(tap1) entered state, code: 5 rip 7");
  const VmcbImage image = image_of_text(joined(lines, "[ 1.0] "));
  CHECK(image.present == printed_fields());
  CHECK(image.notes.empty());
}

TEST_CASE("values that a mailer has folded or cut are put together") {
  const Vmcb vmcb = kvm_vmcb();
  std::vector<std::string> lines = dump_lines(vmcb);
  const auto break_at = [&](const std::string& key, const std::string& at, std::size_t add) {
    for (std::string& line : lines) {
      if (line.rfind(key, 0) != 0) continue;
      const std::size_t where = line.find(at) + add;
      REQUIRE(where < line.size());
      line.insert(where, "\n");
      return;
    }
    FAIL(key);
  };
  SUBCASE("after the key") {
    for (const char* key : {"iopm_base_pa", "asid", "int_ctl", "cr_read", "exit_code", "gpat"})
      break_at(key, ":", 1);
  }
  SUBCASE("within the digits") {
    break_at("iopm_base_pa", ":", 18);
    break_at("int_ctl", ":", 16);
  }
  SUBCASE("between the intercept words") {
    break_at("intercepts", " 0000", 0);
  }
  SUBCASE("within a segment") {
    break_at("cs:", " a:", 0);
    break_at("gs:", "b:", 2);
    break_at("tr:", "b:", 9);
  }
  SUBCASE("between two values of a line") {
    break_at("vmpl", " efer", 0);
  }
  const VmcbImage image = image_of_text(joined(lines, "> "));
  CHECK(image.present == printed_fields());
  check_same_fields(image.page, vmcb);
  CHECK(image.notes.empty());
}

TEST_CASE("damaged values are missing fields with a note, never wrong values") {
  const auto damage = [](const std::string& key, const std::string& line) {
    std::vector<std::string> lines = dump_lines(kvm_vmcb());
    for (std::string& one : lines) {
      if (one.rfind(key, 0) == 0) one = line;
    }
    return image_of_text(joined(lines, "[ 1.0] SVM: "));
  };
  struct Case {
    const char* key;
    const char* line;
    Field field;
    const char* note;
  };
  const std::vector<Case> cases{
      {"iopm_base_pa", "iopm_base_pa:       00001", Field::iopm_base_pa, "iopm_base_pa is cut off"},
      {"iopm_base_pa", "iopm_base_pa:", Field::iopm_base_pa, "iopm_base_pa is missing"},
      {"iopm_base_pa", "iopm_base_pa:       00000000000100000", Field::iopm_base_pa, "cut off"},
      {"iopm_base_pa", "iopm_base_pa:       0000000001x00000", Field::iopm_base_pa, "other characters"},
      {"asid", "asid:               five", Field::asid, "other characters"},
      {"asid", "asid:               99999999999", Field::asid, "does not fit"},
      {"tlb_ctl", "tlb_ctl:            256", Field::tlb_ctl, "does not fit"},
      {"int_ctl", "int_ctl:            0100000 ", Field::int_ctl, "int_ctl is cut off"},
      {"cs:", "cs:   s: 0010 a: 029 l: ffffffff b: 0000000000000000", Field::cs_attrib,
       "cs.attrib has the wrong number"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.line);
    const VmcbImage image = damage(one.key, one.line);
    CHECK_FALSE(image.has(one.field));
    CHECK(image.lost[index_of(one.field)]);
    CHECK(image.lost.count() == 1);
    CHECK(has_note(image, one.note));
    CHECK(read_field(image.page, one.field) == 0);
  }
}

TEST_CASE("a line that is missing makes its fields lost, and no other") {
  const std::vector<std::string> lines = dump_lines(kvm_vmcb());
  for (std::size_t i = 2; i < lines.size(); ++i) {
    std::vector<std::string> fewer = lines;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    CAPTURE(lines[i]);
    const VmcbImage image = image_of_text(joined(fewer));
    CHECK((image.present | image.lost) == printed_fields());
    const bool heading = lines[i] == "VMCB State Save Area:";
    const bool segment = lines[i].find(" l: ") != std::string::npos;
    const std::size_t in_line = segment                                 ? 4
                                : lines[i].rfind("vmpl", 0) == 0        ? 3
                                : lines[i].rfind("intercepts:", 0) == 0 ? 2
                                                                        : 1;
    CHECK(image.lost.count() == (heading ? 0 : in_line));
  }
}

TEST_CASE("several dumps of a file are told apart") {
  Vmcb second = kvm_vmcb();
  second.control.asid = 77;
  const std::string text =
      "noise\n" + joined(dump_lines(kvm_vmcb())) + "noise\n" + joined(dump_lines(second));
  const VmcbImage one = image_of_text(text);
  CHECK(one.dumps == 2);
  CHECK(one.dump == 1);
  CHECK(one.page.control.asid == 1);
  CHECK(has_note(one, "2 dumps"));
  CHECK(one.first_line == 2);
  const VmcbImage two = image_of_text(text, 2);
  CHECK(two.page.control.asid == 77);
  CHECK(two.notes.empty());
  CHECK(problem_of(text, 3) == "file: has 2 VMCB dumps; there is no dump 3");
  CHECK(problem_of(joined(dump_lines(second)), 2) == "file: has 1 VMCB dump; there is no dump 2");
}

TEST_CASE("two dumps without a heading are told apart by their first line") {
  std::vector<std::string> lines = dump_lines(kvm_vmcb());
  lines.erase(lines.begin(), lines.begin() + 2);
  CHECK(image_of_text(joined(lines) + joined(lines)).dumps == 2);
}

TEST_CASE("mixed dumps of two vCPUs: by caller ID, or with a note that values differ") {
  Vmcb second = kvm_vmcb();
  second.control.asid = 77;
  const auto mixed = [&](const char* a, const char* b) {
    const std::vector<std::string> one = dump_lines(kvm_vmcb());
    const std::vector<std::string> two = dump_lines(second);
    std::string text;
    for (std::size_t i = 0; i < one.size(); ++i)
      text += a + one[i] + "\n" + b + two[i] + "\n";
    return text;
  };
  const std::string told_apart = mixed("[ 1.0][ T10] SVM: ", "[ 1.0][  C3] SVM: ");
  CHECK(image_of_text(told_apart, 1).page.control.asid == 1);
  CHECK(image_of_text(told_apart, 2).page.control.asid == 77);
  CHECK(image_of_text(told_apart, 2).lost.none());
  const VmcbImage last = image_of_text(mixed("[ 1.0] SVM: ", "[ 1.0] SVM: "), 2);
  CHECK(has_note(last, "asid is there twice with different values"));
}

TEST_CASE("the exit code of 32 bits stands for the negative codes") {
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.exit_code = exit_code::invalid;
  const VmcbImage image = image_of_text(joined(dump_lines(vmcb)));
  CHECK(image.page.control.exit_code == exit_code::invalid);
  CHECK(has_note(image, "32 bits"));
  vmcb.control.exit_code = 0xffff'fff0;
  CHECK(image_of_text(joined(dump_lines(vmcb))).page.control.exit_code == 0xffff'fff0);
}

TEST_CASE("quoted-printable is undone") {
  const std::vector<LogLine> lines = split_log("a=20b=\r\n=20c=3Dd\r\nlast= 1 =2 =zz");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].text == "a b c=d");
  CHECK(lines[0].number == 1);
  CHECK(lines[1].text == "last= 1 =2 =zz");
  CHECK(lines[1].number == 3);
  CHECK_FALSE(lines[1].complete);
  CHECK(split_log("a=\nb").size() == 2);  // no sign of quoted-printable: an equals sign
}

TEST_CASE("files that are no VMCB give one error that names them") {
  using namespace std::string_literals;
  CHECK(problem_of("") == "file: is empty");
  CHECK(problem_of("\x7f"s + "ELF" + std::string(100, '\0')) == "file: holds no VMCB: is an ELF file");
  CHECK(problem_of("\x7f"s + "ELF" + std::string(4092, '\0')) == "file: holds no VMCB: is an ELF file");
  CHECK(problem_of("\x1f\x8b"s + std::string(500, '\1')).find("gzip") != std::string::npos);
  CHECK(problem_of("just some text\n").find("has no VMCB dump of KVM") != std::string::npos);
  CHECK(problem_of("cr0: 1\nrip: 0000000000000000 rax: 0000000000000000\n").find("no VMCB dump") !=
        std::string::npos);
  CHECK(problem_of("VMCB Control Area:\n").find("no VMCB dump") != std::string::npos);
  CHECK(problem_of(std::string(5000, '\2')) == "file: has 5000 bytes; a VMCB page has 4096");
  CHECK(problem_of(std::string(100, '\2')).find("neither a VMCB page") != std::string::npos);
  CHECK(problem_of(std::string(2000, '\2')).find("neither a VMCB page") != std::string::npos);
  CHECK(problem_of(std::string(4096, '\2'), 2).find("no dump 2") != std::string::npos);
  CHECK_THROWS_AS((void)read_vmcb_image("/nowhere/at/all"), VmcbError);
  CHECK_THROWS_AS((void)read_vmcb_image(SVMSIM_SOURCE_DIR), VmcbError);
}

TEST_CASE("a page, whole or cut, is read as far as it goes") {
  const Vmcb vmcb = kvm_vmcb();
  std::string bytes(sizeof(Vmcb), '\0');
  std::memcpy(bytes.data(), &vmcb, sizeof(Vmcb));
  const VmcbImage whole = parse_vmcb_image(bytes, "page");
  CHECK(whole.kind == ImageKind::page);
  CHECK(whole.present.all());
  CHECK(std::memcmp(&whole.page, &vmcb, sizeof(Vmcb)) == 0);
  CHECK(parse_vmcb_image(std::string(sizeof(Vmcb), '\0'), "zero").present.all());
  const VmcbImage cut = parse_vmcb_image(bytes.substr(0, 0x40c), "page");
  CHECK(cut.has(Field::asid));
  CHECK(cut.has(Field::es_limit));
  CHECK_FALSE(cut.has(Field::es_base));
  CHECK(has_note(cut, "ends after 1036 of 4096 bytes"));
}

TEST_CASE("the dumps of each vintage in tests/data") {
  struct Case {
    const char* file;
    GuestType type;
    std::size_t lost;
    bool state;
    std::uint32_t asid;
  };
  const std::vector<Case> cases{
      {"kvm-4.9-dmesg.txt", GuestType::unknown, 0, true, 5},
      {"kvm-5.4-syslog.txt", GuestType::unknown, 0, true, 0},
      {"kvm-5.15-sev-journal-crlf.txt", GuestType::sev, 0, true, 7},
      {"kvm-6.1-sev-es.txt", GuestType::sev_es, 0, false, 2},
      {"kvm-6.8-two-vcpus-mixed.txt", GuestType::unknown, 0, true, 5},
      {"kvm-6.16-snp.txt", GuestType::sev_snp, 0, true, 3},
      {"kvm-6.16-sev-es-no-debug.txt", GuestType::sev_es, 0, false, 2},
      {"kvm-6.18-avic-v_irq.txt", GuestType::svm, 0, true, 5},
      {"kvm-7.0-renamed.txt", GuestType::svm, 0, true, 5},
      {"mail-quoted-folded-cut.txt", GuestType::unknown, 12, true, 5},
  };
  for (const Case& one : cases) {
    CAPTURE(one.file);
    const VmcbImage image = read_vmcb_image(data_file(one.file));
    CHECK(image.guest_type == one.type);
    CHECK(image.lost.count() == one.lost);
    CHECK(image.state_is_the_guests == one.state);
    CHECK(image.has(Field::asid));
    CHECK(image.page.control.asid == one.asid);
    CHECK(image.page.control.iopm_base_pa == 0x10'0000);
  }
  CHECK(read_vmcb_image(data_file("kvm-6.16-snp.txt")).vmsa_sev_features == 0x21U);
  CHECK(read_vmcb_image(data_file("kvm-4.9-dmesg.txt")).page.control.intercepts[4] == 0x267f);
  CHECK(read_vmcb_image(data_file("kvm-6.8-two-vcpus-mixed.txt"), 2).page.control.asid == 9);
  CHECK(read_vmcb_image(data_file("kvm-7.0-renamed.txt")).page.control.erap_ctl == 1);
  CHECK(read_vmcb_image(data_file("mail-quoted-folded-cut.txt")).page.save.rflags == 2);
  CHECK(read_vmcb_image(data_file("mail-quoted-folded-cut.txt")).page.save.gs.base == 0xffff'8880'0000'0000);
}

TEST_CASE("what a kernel prints is read back, for any VMCB") {
  CHECK(rc::check("round trip", [] {
    const Vmcb vmcb = random_vmcb();
    const VmcbImage image = image_of_text(joined(dump_lines(vmcb), "[ 1.0] kvm_amd: "));
    RC_ASSERT(image.present == printed_fields());
    for (const FieldInfo& info : dump_fields()) {
      if (info.vintage <= DumpVintage::v6_18)
        RC_ASSERT(read_field(image.page, info.field) == read_field(vmcb, info.field));
    }
  }));
}

TEST_CASE("lines that are cut off or lost never give a value that was not printed") {
  CHECK(rc::check("cut lines", [] {
    const Vmcb vmcb = random_vmcb();
    std::vector<std::string> lines = dump_lines(vmcb);
    for (int n = 0; n < 10; ++n) {
      const auto at = *rc::gen::inRange<std::size_t>(0, lines.size());
      if (*rc::gen::arbitrary<bool>()) {
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        lines[at].resize(*rc::gen::inRange<std::size_t>(0, lines[at].size() + 1));
      }
    }
    for (const VmcbImage& image : parse_kernel_dumps(joined(lines, "[ 1.0] kvm_amd: "), "log")) {
      for (const FieldInfo& info : dump_fields()) {
        // The digits that are left of a decimal number are a number, too; 8 of 16 are an exit code.
        if (!image.has(info.field) || info.format == DumpFormat::decimal) continue;
        if (read_field(image.page, info.field) != read_field(vmcb, info.field))
          RC_FAIL(std::string(info.name));
      }
    }
  }));
}

TEST_CASE("the parser takes any bytes") {
  CHECK(rc::check("bytes", [](const std::string& noise) {
    std::string text = joined(dump_lines(kvm_vmcb()));
    text.insert(*rc::gen::inRange<std::size_t>(0, text.size()), noise);
    for (const VmcbImage& image : parse_kernel_dumps(text, "log"))
      RC_ASSERT((image.present & image.lost).none());
    try {
      (void)parse_vmcb_image(noise, "noise");
    } catch (const VmcbError&) {
    }
  }));
}
