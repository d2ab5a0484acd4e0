# make [TARGET] [BUILD_FLAVOR=release|debug|cycles|asan|ubsan|tsan] [EXTRA_CFLAGS=...] [MIMALLOC=FILE]: builds a CMake
# target, or all of them, in build/$(BUILD_FLAVOR).
#
# A benchmark program is left here, too, as a link: `make bench_random_mixed_hakmem && ./bench_random_mixed_hakmem`.
# NAME_hakmem is linked with HAKMEM. NAME_system runs on the system's malloc, NAME_mi on the mimalloc of MIMALLOC, which
# `./hakmem peers build mimalloc2` makes. bench_tiny_mt and test_mf2 are the programs with HAKMEM.
# `make clean` takes the links away.
#
# EXTRA_CFLAGS are more options for the C compiler, such as -DHAKMEM_DEBUG_COUNTERS=1; the next make without them builds
# without them.

BUILD_FLAVOR ?= release
BUILD_DIR := build/$(BUILD_FLAVOR)
EXTRA_CFLAGS ?=
MIMALLOC ?= $(or $(HAKMEM_PEERS_DIR),build/peers)/mimalloc2/libmimalloc2.so
# As CMake's cache has them.
EXTRA_ENTRY := HAKMEM_EXTRA_CFLAGS:STRING=$(EXTRA_CFLAGS)
MIMALLOC_ENTRY := HAKMEM_MIMALLOC:FILEPATH=$(abspath $(MIMALLOC))

.DEFAULT_GOAL := all
.PHONY: configure
configure:
	@test -f $(BUILD_DIR)/build.ninja && grep -qxF -- '$(EXTRA_ENTRY)' $(BUILD_DIR)/CMakeCache.txt && \
	    grep -qxF -- '$(MIMALLOC_ENTRY)' $(BUILD_DIR)/CMakeCache.txt || \
	    cmake --preset $(BUILD_FLAVOR) '-D$(EXTRA_ENTRY)' '-D$(MIMALLOC_ENTRY)'

.PHONY: FORCE
bench_% larson% test_mf2%: configure FORCE
	@cmake --build $(BUILD_DIR) --target $(@:%_system=%)
	@test ! -x $(BUILD_DIR)/bin/$(@:%_system=%) || ln -sf $(BUILD_DIR)/bin/$(@:%_system=%) $@

# The names without an allocator's.
bench_tiny_mt test_mf2: configure FORCE
	@cmake --build $(BUILD_DIR) --target $@_hakmem
	@ln -sf $(BUILD_DIR)/bin/$@_hakmem $@

.PHONY: clean
clean: configure
	@cmake --build $(BUILD_DIR) --target clean
	@find . -maxdepth 1 -type l '(' -name 'bench_*' -o -name 'larson*' -o -name 'test_mf2*' ')' -delete

# Every other goal is a target of the CMake build; "all" is, too.
%: configure FORCE
	@cmake --build $(BUILD_DIR) --target $@

Makefile: ;
