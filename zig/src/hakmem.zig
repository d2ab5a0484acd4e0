//! HAKMEM, a general-purpose memory allocator for Linux, as a std.mem.Allocator.
const std = @import("std");
const Alignment = std.mem.Alignment;

extern fn hak_version() [*:0]const u8;
extern fn hak_malloc(size: usize) ?*anyopaque;
extern fn hak_aligned_alloc(alignment: usize, size: usize) ?*anyopaque;
extern fn hak_realloc(block: ?*anyopaque, size: usize) ?*anyopaque;
extern fn hak_expand(block: ?*anyopaque, size: usize) usize;
extern fn hak_free(block: ?*anyopaque) void;
extern fn hak_usable_size(block: ?*const anyopaque) usize;
extern fn hak_collect(purge: bool) usize;

/// The process's allocator. Any thread may use it.
pub const allocator: std.mem.Allocator = .{ .ptr = undefined, .vtable = &vtable };

const vtable: std.mem.Allocator.VTable = .{ .alloc = alloc, .resize = resize, .remap = remap, .free = free };

/// Every block is aligned to this many bytes.
const block_alignment: Alignment = .@"16";

fn alloc(_: *anyopaque, len: usize, alignment: Alignment, _: usize) ?[*]u8 {
    const block = if (alignment.compare(.lte, block_alignment))
        hak_malloc(len)
    else
        hak_aligned_alloc(alignment.toByteUnits(), len);
    return @ptrCast(block);
}

fn resize(_: *anyopaque, memory: []u8, _: Alignment, new_len: usize, _: usize) bool {
    return hak_expand(memory.ptr, new_len) != 0;
}

fn remap(_: *anyopaque, memory: []u8, alignment: Alignment, new_len: usize, _: usize) ?[*]u8 {
    if (alignment.compare(.lte, block_alignment)) return @ptrCast(hak_realloc(memory.ptr, new_len));
    return if (hak_expand(memory.ptr, new_len) != 0) memory.ptr else null;
}

/// Frees without the size: a block that was resized in place may have a larger class than its length needs.
fn free(_: *anyopaque, memory: []u8, _: Alignment, _: usize) void {
    hak_free(memory.ptr);
}

/// The version of the linked HAKMEM.
pub fn version() [:0]const u8 {
    return std.mem.span(hak_version());
}

/// The number of usable bytes of the block, at least the requested size.
pub fn usableSize(block: *const anyopaque) usize {
    return hak_usable_size(block);
}

/// Gives the calling thread's free blocks to other threads. With `purge` it also gives the process's free memory back
/// to the system. Returns the bytes given back.
pub fn collect(purge: bool) usize {
    return hak_collect(purge);
}

test "the contract of an allocator" {
    try std.heap.testAllocator(allocator);
    try std.heap.testAllocatorAligned(allocator);
    try std.heap.testAllocatorLargeAlignment(allocator);
    try std.heap.testAllocatorAlignedShrink(allocator);
}

test "blocks are HAKMEM's" {
    for ([_]usize{ 1, 100, 5000, 100_000, 3 << 20 }) |size| {
        var memory = try allocator.alloc(u8, size);
        try std.testing.expect(usableSize(memory.ptr) >= size);
        memory[size - 1] = 7;
        memory = try allocator.realloc(memory, 3 * size);
        try std.testing.expectEqual(@as(u8, 7), memory[size - 1]);
        allocator.free(memory);
    }
    try std.testing.expectError(error.OutOfMemory, allocator.alloc(u8, 1 << 62));
    _ = collect(true);
}
