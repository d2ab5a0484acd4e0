# make [TARGET] [BUILD_FLAVOR=release|debug|asan|ubsan|tsan] [EXTRA_CFLAGS=...]: builds a CMake target, or all of them,
# in build/$(BUILD_FLAVOR). `make bench_random_mixed_hakmem BUILD_FLAVOR=release` gives
# build/release/bin/bench_random_mixed_hakmem. EXTRA_CFLAGS are more options for the C compiler; the next make without
# them builds without them.

BUILD_FLAVOR ?= release
BUILD_DIR := build/$(BUILD_FLAVOR)
EXTRA_CFLAGS ?=
# As CMake's cache has it.
EXTRA_ENTRY := HAKMEM_EXTRA_CFLAGS:STRING=$(EXTRA_CFLAGS)

.DEFAULT_GOAL := all
.PHONY: configure
configure:
	@test -f $(BUILD_DIR)/build.ninja && grep -qxF -- '$(EXTRA_ENTRY)' $(BUILD_DIR)/CMakeCache.txt || \
	    cmake --preset $(BUILD_FLAVOR) '-D$(EXTRA_ENTRY)'

# Every goal is a target of the CMake build; "all" and "clean" are too.
.PHONY: FORCE
%: configure FORCE
	@cmake --build $(BUILD_DIR) --target $@

Makefile: ;
