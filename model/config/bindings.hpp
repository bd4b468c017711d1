#pragma once

#include <limits>
#include <utility>

#include "model/config/parameters.hpp"

// Makers of bindings for the common field types. Only the declaration tables include this.
namespace svmsim::model::bindings {

inline Parameter declaration(std::string path, ParameterType type, std::string unit, std::string doc,
                             std::string source) {
  Parameter result;
  result.path = std::move(path);
  result.type = type;
  result.unit = std::move(unit);
  result.doc = std::move(doc);
  result.source = std::move(source);
  return result;
}

template <class Owner>
Binding<Owner> declare(std::string path, ParameterType type, std::string unit, std::string doc,
                       std::string source) {
  Binding<Owner> binding;
  binding.declaration =
      declaration(std::move(path), type, std::move(unit), std::move(doc), std::move(source));
  return binding;
}

/// The default is what the resolved struct starts with: it is written once, in the struct.
template <class Owner>
Binding<Owner> with_fallback(Binding<Owner> binding) {
  binding.declaration.fallback = binding.get(Owner{});
  return binding;
}

/// An integer or duration field of any unsigned type.
template <class Owner, class Class, class Field>
Binding<Owner> number(std::string path, Field Class::*field, std::int64_t minimum, std::int64_t maximum,
                      std::string unit, std::string doc, std::string source,
                      ParameterType type = ParameterType::integer) {
  auto binding = declare<Owner>(std::move(path), type, std::move(unit), std::move(doc), std::move(source));
  binding.declaration.minimum = minimum;
  binding.declaration.maximum = maximum;
  binding.set = [field](Owner& owner, const SettingValue& value) {
    owner.*field = static_cast<Field>(std::get<std::int64_t>(value));
  };
  binding.get = [field](const Owner& owner) { return SettingValue(static_cast<std::int64_t>(owner.*field)); };
  return with_fallback(std::move(binding));
}

template <class Owner, class Class>
Binding<Owner> duration(std::string path, std::uint64_t Class::*field, std::int64_t minimum,
                        std::int64_t maximum, std::string doc, std::string source) {
  return number<Owner>(std::move(path), field, minimum, maximum, "ns", std::move(doc), std::move(source),
                       ParameterType::duration);
}

template <class Owner, class Class>
Binding<Owner> boolean(std::string path, bool Class::*field, std::string doc, std::string source) {
  auto binding =
      declare<Owner>(std::move(path), ParameterType::boolean, "", std::move(doc), std::move(source));
  binding.set = [field](Owner& owner, const SettingValue& value) { owner.*field = std::get<bool>(value); };
  binding.get = [field](const Owner& owner) { return SettingValue(owner.*field); };
  return with_fallback(std::move(binding));
}

template <class Owner, class Class>
Binding<Owner> text(std::string path, std::string Class::*field, std::string doc, std::string source) {
  auto binding = declare<Owner>(std::move(path), ParameterType::text, "", std::move(doc), std::move(source));
  binding.set = [field](Owner& owner, const SettingValue& value) {
    owner.*field = std::get<std::string>(value);
  };
  binding.get = [field](const Owner& owner) { return SettingValue(owner.*field); };
  return with_fallback(std::move(binding));
}

/// A field of an enumeration, spelled by a table of names.
template <class Owner, class Class, class Enum>
Binding<Owner> choice(std::string path, Enum Class::*field, std::vector<std::pair<std::string, Enum>> names,
                      std::string doc, std::string source) {
  auto binding =
      declare<Owner>(std::move(path), ParameterType::choice, "", std::move(doc), std::move(source));
  for (const auto& [name, value] : names)
    binding.declaration.choices.push_back(name);
  binding.set = [field, names](Owner& owner, const SettingValue& value) {
    for (const auto& [name, entry] : names) {
      if (name == std::get<std::string>(value)) owner.*field = entry;
    }
  };
  binding.get = [field, names](const Owner& owner) -> std::optional<SettingValue> {
    for (const auto& [name, entry] : names) {
      if (entry == owner.*field) return SettingValue(name);
    }
    return std::nullopt;
  };
  return with_fallback(std::move(binding));
}

}  // namespace svmsim::model::bindings
