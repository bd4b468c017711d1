# Debian's libsystemc exports sc_api_version_2_3_4_cxx201703L: a program compiled with another standard
# fails at link time. The standard is set once, here, and SvmsimDependencies.cmake explains a mismatch.
if(DEFINED CMAKE_CXX_STANDARD AND NOT CMAKE_CXX_STANDARD EQUAL 17)
  message(FATAL_ERROR
    "svmsim needs exactly C++17, but CMAKE_CXX_STANDARD is ${CMAKE_CXX_STANDARD}. Debian's libsystemc 2.3.4 was "
    "built as C++17 and its headers demand the symbol of that standard (sc_api_version_2_3_4_cxx201703L): any "
    "other standard fails at link time. Leave CMAKE_CXX_STANDARD unset.")
endif()
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# ccache only shortens rebuilds; nothing depends on it.
find_program(SVMSIM_CCACHE ccache)
if(SVMSIM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SVMSIM_CCACHE}")
endif()

add_library(svmsim_options INTERFACE)
target_include_directories(svmsim_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(svmsim_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast
  -Woverloaded-virtual -Wimplicit-fallthrough)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports std::variant members as maybe uninitialised when it optimises; Clang and the sanitizers check the rest.
  target_compile_options(svmsim_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(SVMSIM_WERROR)
  target_compile_options(svmsim_options INTERFACE -Werror)
endif()
if(SVMSIM_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  # SystemC threads switch stacks without telling AddressSanitizer (google/sanitizers issue 189): after an exception, stale
  # poison on a stack gives false reports. The heap, globals and everything UBSan knows stay checked.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(--param asan-stack=0)
  else()
    add_compile_options("SHELL:-mllvm -asan-stack=0")
  endif()
endif()
if(SVMSIM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

# svmsim_cold(PATTERN...): sources that run once, at the start or the end of a run. Optimising them costs a third of
# the build and gains nothing that could be measured.
function(svmsim_cold)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARGN})
  set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS
    "$<$<CONFIG:Release>:-O1>" "$<$<BOOL:${SVMSIM_SANITIZE}>:-O0>")
endfunction()

# svmsim_room(NAME DEPENDS...): the static library of one room, all .cpp files below its directory.
function(svmsim_room name)
  cmake_parse_arguments(room "" "" "DEPENDS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  add_library(svmsim_${name} STATIC ${sources})
  target_link_libraries(svmsim_${name} PUBLIC svmsim_options ${room_DEPENDS} PRIVATE ${room_PRIVATE})
endfunction()
