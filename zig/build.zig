//! HAKMEM as a Zig package: the module `hakmem`, which contains HAKMEM's C source.
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const override = b.option(bool, "override", "HAKMEM is the program's malloc, too") orelse false;

    const module = b.addModule("hakmem", .{
        .root_source_file = b.path("src/hakmem.zig"),
        .target = target,
        .optimize = optimize,
        .link_libc = true,
    });
    module.addCSourceFile(.{
        // `hakmem package --only zig` packs it; in a checkout `hakmem amalgamate zig/vendor` makes it.
        .file = b.path("vendor/hakmem.c"),
        // An allocator without optimisation would slow down the program's debug build, and Zig's checks of C code in
        // debug builds would be on its fast path.
        .flags = &.{ "-O2", "-fno-sanitize=all", if (override) "-DHAKMEM_OVERRIDE=1" else "-DHAKMEM_OVERRIDE=0" },
    });

    const tests = b.addTest(.{ .root_module = module });
    b.step("test", "Run the package's own tests").dependOn(&b.addRunArtifact(tests).step);
}
