# make [TARGET] [BUILD_FLAVOR=release|debug|asan|ubsan|tsan]: builds a CMake target, or all of them, in
# build/$(BUILD_FLAVOR). `make bench_random_mixed_hakmem BUILD_FLAVOR=release` gives
# build/release/bin/bench_random_mixed_hakmem.

BUILD_FLAVOR ?= release
BUILD_DIR := build/$(BUILD_FLAVOR)

.DEFAULT_GOAL := all
.PHONY: configure
configure:
	@test -f $(BUILD_DIR)/build.ninja || cmake --preset $(BUILD_FLAVOR)

# Every goal is a target of the CMake build; "all" and "clean" are too.
.PHONY: FORCE
%: configure FORCE
	@cmake --build $(BUILD_DIR) --target $@

Makefile: ;
