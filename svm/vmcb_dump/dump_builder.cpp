#include "svm/vmcb_dump/dump_builder.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace svmsim::svm {

namespace {

constexpr std::size_t most_notes = 40;

std::size_t digits_of(DumpFormat format) noexcept {
  switch (format) {
    case DumpFormat::hex4:
      return 4;
    case DumpFormat::hex8:
      return 8;
    case DumpFormat::hex16:
    case DumpFormat::hex8_or_16:
      return 16;
    default:
      return 0;
  }
}

bool right_length(DumpFormat format, std::size_t digits) noexcept {
  if (format == DumpFormat::hex8_or_16) return digits == 8 || digits == 16;
  return digits == digits_of(format);
}

void skip_spaces(std::string_view& text) noexcept {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
}

/// The digits at the front of a text; takes them off. A decimal number may have a sign.
std::string_view take_digits(std::string_view& text, bool decimal) noexcept {
  std::size_t length = 0;
  if (decimal && !text.empty() && text.front() == '-') ++length;
  while (length < text.size() && (decimal ? is_decimal_digit(text[length]) : is_hex_digit(text[length])))
    ++length;
  const std::string_view digits = text.substr(0, length);
  text.remove_prefix(length);
  return digits;
}

std::string_view take_word(std::string_view& text) noexcept {
  skip_spaces(text);
  std::size_t length = 0;
  while (length < text.size() && !is_space(text[length]))
    ++length;
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(length);
  return word;
}

std::optional<unsigned> number_of(std::string_view text) noexcept {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view guest_type_name(GuestType type) noexcept {
  switch (type) {
    case GuestType::svm:
      return "SVM";
    case GuestType::sev:
      return "SEV";
    case GuestType::sev_es:
      return "SEV-ES";
    case GuestType::sev_snp:
      return "SEV-SNP";
    case GuestType::unknown:
      break;
  }
  return "";
}

DumpBuilder::DumpBuilder(const std::string& source) {
  image_.kind = ImageKind::kernel_dump;
  image_.source = source;
}

void DumpBuilder::note(std::string text) {
  if (image_.notes.size() < most_notes) image_.notes.push_back({line_, std::move(text)});
}

void DumpBuilder::begin_line(const LogLine& line) {
  line_ = line.number;
  line_complete_ = line.complete;
  if (image_.first_line == 0) image_.first_line = line_;
  image_.last_line = line_;
}

std::string_view DumpBuilder::take(const DumpKey& key, std::string_view rest) {
  give_up();
  switch (key.kind) {
    case DumpKeyKind::control_heading:
    case DumpKeyKind::failed_heading:
      has_heading_ = true;
      return {};
    case DumpKeyKind::save_heading:
      has_heading_ = true;
      in_save_area_ = true;
      return {};
    case DumpKeyKind::vmrun_heading:
      take_vmrun_heading(rest);
      return {};
    case DumpKeyKind::field: {
      segment_.reset();
      const FieldInfo& info = field_info(key.field);
      return take_value({key.field, dump_name(key.field), info.format}, rest);
    }
    case DumpKeyKind::intercepts: {
      segment_.reset();
      skip_spaces(rest);
      std::string_view digits = rest;
      if (take_digits(digits, false).size() == 16) {
        const std::string_view both = rest.substr(0, 16);
        // A 64-bit number until Linux 5.9: word 4 is its upper half.
        store({Field::intercepts_4, "intercepts", DumpFormat::hex8}, both.substr(0, 8));
        store({Field::intercepts_3, "intercepts", DumpFormat::hex8}, both.substr(8));
        return digits;
      }
      rest = take_value({Field::intercepts_3, "intercepts", DumpFormat::hex8}, rest);
      if (pending_) return rest;
      return take_value({Field::intercepts_4, "intercepts", DumpFormat::hex8}, rest);
    }
    case DumpKeyKind::segment:
      segment_ = key.field;
      return rest;
    case DumpKeyKind::segment_part: {
      if (!segment_) return rest;
      const auto field = static_cast<Field>(index_of(*segment_) + key.part);
      const FieldInfo& info = field_info(field);
      if (key.part == 3) segment_.reset();
      return take_value({field, info.name, info.format}, rest);
    }
    case DumpKeyKind::more_register:
      segment_.reset();
      return take_value({std::nullopt, key.name, DumpFormat::hex16}, rest);
  }
  return {};
}

std::string_view DumpBuilder::take_value(const Slot& slot, std::string_view rest) {
  skip_spaces(rest);
  if (rest.substr(0, 2) == "0x") rest.remove_prefix(2);
  const bool decimal = slot.format == DumpFormat::decimal;
  const std::string_view digits = take_digits(rest, decimal);
  const bool at_end = rest.find_first_not_of(" \t\v\f\r") == std::string_view::npos;
  if (!rest.empty() && !is_space(rest.front())) {
    damaged(slot, "is followed by other characters");
    while (!rest.empty() && !is_space(rest.front()))
      rest.remove_prefix(1);
    return rest;
  }
  const bool complete = decimal ? !digits.empty() : right_length(slot.format, digits.size());
  if (complete) {
    if (decimal && at_end && !line_complete_ && image_.last_line == line_)
      note(fmt::format("the file ends right after the value of {}, which may be cut", slot.name));
    store(slot, digits);
  } else if (at_end) {
    pending_ = slot;
    pending_digits_ = digits;
  } else {
    damaged(slot, "has the wrong number of digits");
  }
  return rest;
}

void DumpBuilder::continuation(const LogLine& line) {
  if (!pending_ || finished_) return;
  std::string_view text = line.text;
  skip_spaces(text);
  if (text.empty()) return;  // folded mails may have empty lines between
  const Slot slot = *pending_;
  std::string_view rest = text;
  const std::string digits =
      pending_digits_ + std::string(take_digits(rest, slot.format == DumpFormat::decimal));
  const bool ends = rest.empty() || is_space(rest.front());
  const bool complete =
      slot.format == DumpFormat::decimal ? !digits.empty() : right_length(slot.format, digits.size());
  if (!ends || !complete) return;
  pending_.reset();
  pending_digits_.clear();
  line_ = line.number;
  image_.last_line = line_;
  store(slot, digits);
  if (slot.field == Field::intercepts_3 && slot.name == "intercepts")
    (void)take_value({Field::intercepts_4, "intercepts", DumpFormat::hex8}, rest);
}

void DumpBuilder::give_up() {
  if (!pending_) return;
  damaged(*pending_, pending_digits_.empty() ? "is missing" : "is cut off");
  pending_.reset();
  pending_digits_.clear();
}

void DumpBuilder::damaged(const Slot& slot, std::string_view why) {
  note(fmt::format("the value of {} {}", slot.name, why));
}

void DumpBuilder::store(const Slot& slot, std::string_view digits) {
  std::uint64_t value = 0;
  if (slot.format == DumpFormat::decimal) {
    std::int64_t number = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const std::size_t bits = 8 * field_info(*slot.field).bytes;
    const bool fits =
        result.ec == std::errc{} &&
        (bits >= 64 || (number >= -(std::int64_t{1} << (bits - 1)) && number < std::int64_t{1} << bits));
    if (!fits) {
      damaged(slot, "does not fit into its field");
      return;
    }
    value = static_cast<std::uint64_t>(number);
  } else {
    std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  }
  if (!slot.field) {
    if (slot.name == "sev_features") image_.vmsa_sev_features = value;
    if (slot.name == "rbx") has_general_registers_ = true;
    image_.more_registers.emplace_back(slot.name, value);
    return;
  }
  // The kernel printed the low half of a 64-bit exit code until 6.18: -1 to -4 are the negative ones.
  if (*slot.field == Field::exit_code && digits.size() == 8 && value >= 0xffff'fffc) {
    value |= 0xffff'ffff'0000'0000;
    note("exit_code is printed with 32 bits and taken for a negative code");
  }
  if (image_.has(*slot.field)) {
    if (read_field(image_.page, *slot.field) != value)
      note(fmt::format(
          "{} is there twice with different values, the first one counts; perhaps two dumps are mixed",
          slot.name));
    return;
  }
  write_field(image_.page, *slot.field, value);
  image_.present.set(index_of(*slot.field));
}

void DumpBuilder::take_vmrun_heading(std::string_view text) {
  has_heading_ = true;
  has_vmrun_heading_ = true;
  std::string_view word = take_word(text);
  for (const GuestType type : {GuestType::svm, GuestType::sev, GuestType::sev_es, GuestType::sev_snp}) {
    if (word != guest_type_name(type)) continue;
    image_.guest_type = type;
    word = take_word(text);
    if (word.substr(0, 4) == "vCPU") {
      image_.vcpu = number_of(word.substr(4));
      word = take_word(text);
    }
    break;
  }
  std::string_view address = take_word(text);
  if (!address.empty() && address.back() == ',') address.remove_suffix(1);
  if (std::all_of(address.begin(), address.end(), is_hex_digit)) image_.address = address;
  constexpr std::string_view on_cpu = "on CPU ";
  const std::size_t cpu = text.find(on_cpu);
  if (cpu != std::string_view::npos) image_.last_cpu = number_of(text.substr(cpu + on_cpu.size()));
}

void DumpBuilder::finish() {
  if (finished_) return;
  give_up();
  line_ = 0;
  judge_guest_type();
  find_missing();
  finished_ = true;
}

void DumpBuilder::judge_guest_type() {
  const std::uint64_t nested = image_.page.control.nested_ctl;
  const bool es_bit = image_.has(Field::nested_ctl) && (nested & (1U << 2)) != 0;
  const bool es = es_bit || image_.guest_type == GuestType::sev_es || image_.guest_type == GuestType::sev_snp;
  if (image_.guest_type == GuestType::unknown && es_bit) image_.guest_type = GuestType::sev_es;
  if (image_.guest_type == GuestType::unknown && image_.has(Field::nested_ctl) && (nested & (1U << 1)) != 0)
    image_.guest_type = GuestType::sev;
  // Since 6.16 the kernel prints the VMSA, decrypted, or nothing when the guest's policy forbids that.
  if (es) image_.state_is_the_guests = image_.vcpu.has_value() || image_.vmsa_sev_features.has_value();
}

void DumpBuilder::find_missing() {
  DumpVintage vintage = DumpVintage::v4_4;
  for (const FieldInfo& info : dump_fields()) {
    if (info.vintage != DumpVintage::never && image_.has(info.field))
      vintage = std::max(vintage, info.vintage);
  }
  if (image_.vcpu || has_general_registers_) vintage = std::max(vintage, DumpVintage::v6_16);
  const bool es = image_.guest_type == GuestType::sev_es || image_.guest_type == GuestType::sev_snp;
  bool save_area = in_save_area_;
  for (const FieldInfo& info : dump_fields())
    save_area = save_area || (info.offset >= sizeof(VmcbControl) && image_.has(info.field));
  const bool withheld = es && !save_area && vintage >= DumpVintage::v6_16;
  if (withheld) {
    image_.state_is_the_guests = false;
    note(
        "the dump has no state save area: the guest's policy does not let the host decrypt it, or the lines "
        "are lost");
  }
  for (const FieldInfo& info : dump_fields()) {
    const std::size_t index = index_of(info.field);
    if (image_.present[index]) continue;
    const bool state = info.offset >= sizeof(VmcbControl);
    const bool printed =
        info.vintage <= vintage && info.vintage != DumpVintage::never && !(state && withheld);
    (printed ? image_.lost : image_.not_printed).set(index);
  }
}

}  // namespace svmsim::svm
