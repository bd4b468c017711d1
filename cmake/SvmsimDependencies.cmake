find_package(PkgConfig REQUIRED)
pkg_check_modules(SYSTEMC REQUIRED IMPORTED_TARGET systemc)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(TRACECMD REQUIRED IMPORTED_TARGET libtracecmd libtracefs libtraceevent)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)

# SystemC's headers warn under our flags; treat them as system headers.
add_library(svmsim_systemc INTERFACE)
target_link_libraries(svmsim_systemc INTERFACE PkgConfig::SYSTEMC)
get_target_property(systemc_includes PkgConfig::SYSTEMC INTERFACE_INCLUDE_DIRECTORIES)
if(systemc_includes)
  target_include_directories(svmsim_systemc SYSTEM INTERFACE ${systemc_includes})
endif()

include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::SYSTEMC)
set(CMAKE_REQUIRED_FLAGS "-std=c++17")
check_cxx_source_compiles("#include <systemc>
int sc_main(int, char**) { sc_core::sc_start(); return 0; }" SVMSIM_SYSTEMC_LINKS_AS_CXX17)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT SVMSIM_SYSTEMC_LINKS_AS_CXX17)
  message(FATAL_ERROR
    "The installed SystemC does not link with a C++17 program. svmsim is C++17 exactly because Debian 12's libsystemc "
    "2.3.4 exports the symbol of that standard only (sc_api_version_2_3_4_cxx201703L). Install Debian's libsystemc-dev, "
    "or a SystemC that was built with -std=c++17.")
endif()
