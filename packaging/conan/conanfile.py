"""The Conan recipe: `conan create packaging/conan` in a checkout. docs/embed.md says more."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

required_conan_version = ">=2.0"

# The parts of a checkout that the library's build needs.
SOURCES = ["CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"]



class HakmemConan(ConanFile):
    name = "hakmem"
    description = "A general-purpose memory allocator for Linux"
    license = "MIT"
    topics = ("allocator", "malloc", "memory")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "override": [True, False]}
    default_options = {"shared": False, "override": False}
    options_description = {
        "shared": "libhakmem.so, in place of malloc",
        "override": "of the static library: malloc, its family and the C++ operators, not the hak_* names only",
    }

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        """Takes the version from the public header, its only home."""
        header = load(self, os.path.join(self._checkout, "include", "hakmem", "hakmem.h"))
        self.version = re.search(r'HAK_VERSION_STRING "([0-9.]+)"', header)[1]

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self._checkout, self.export_sources_folder)

    def configure(self):
        # The library has no C++ objects.
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")
        if self.options.shared:
            del self.options.override

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"HAKMEM runs on Linux, not on {self.settings.os}")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["HAKMEM_TESTS"] = False
        toolchain.cache_variables["HAKMEM_BENCH"] = False
        toolchain.cache_variables["HAKMEM_TOOLS"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    @property
    def _target(self):
        """Returns the name of the CMake target, in the build and after hakmem::."""
        if self.options.shared:
            return "hakmem"
        return "override" if self.options.override else "static"

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target={"hakmem": "hakmem", "static": "hakmem_static", "override": "hakmem_override"}[self._target])

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*.h*", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        names = {"hakmem": "libhakmem.so*", "static": "libhakmem.a", "override": "libhakmem-override.a"}
        copy(self, names[self._target], os.path.join(self.build_folder, "lib"),
             os.path.join(self.package_folder, "lib"), keep_path=False)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "hakmem")
        self.cpp_info.set_property("cmake_target_name", f"hakmem::{self._target}")
        self.cpp_info.set_property("pkg_config_name", "hakmem" if self.options.shared else f"hakmem-{self._target}")
        self.cpp_info.libs = ["hakmem-override" if self._target == "override" else "hakmem"]
        self.cpp_info.system_libs = ["pthread"]
        if self._target != "hakmem":
            self.cpp_info.defines = ["HAK_STATIC"]
            # A plugin that contains the archive stays in memory (src/api/pin.c).
            self.cpp_info.sharedlinkflags = ["-Wl,-z,nodelete"]
        if self._target == "override":
            # Linked even if only the program's shared libraries call malloc.
            self.cpp_info.exelinkflags = ["-Wl,--undefined=malloc"]
