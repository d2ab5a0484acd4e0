//! Figures about memory (feature `stats`).
//!
//! ```
//! let stats = hakmem::stats::get()?;
//! assert_eq!(
//!     stats.mapped,
//!     stats.live + stats.cached + stats.free_in_slab + stats.retained + stats.metadata
//! );
//! let mut json = Vec::new();
//! hakmem::stats::print(hakmem::stats::Format::Json, &mut json)?;
//! # Ok::<(), std::io::Error>(())
//! ```

use core::ffi::{c_char, c_int, c_void};
use std::io;

use hakmem_sys as sys;

pub use sys::hak_stats as Stats;
pub use sys::hak_stats_pool as Pool;

/// The format that [`print`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Prometheus,
}

/// The current figures. The only error is lack of memory.
pub fn get() -> io::Result<Stats> {
    let mut stats = Stats::default();
    // SAFETY: the struct has the size that is given.
    match unsafe { sys::hak_stats_get(&mut stats, core::mem::size_of::<Stats>()) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(stats),
    }
}

struct Target<'a> {
    output: &'a mut dyn io::Write,
    result: io::Result<()>,
}

unsafe extern "C" fn write(argument: *mut c_void, text: *const c_char, length: usize) -> c_int {
    let target = &mut *argument.cast::<Target>();
    target.result = target.output.write_all(core::slice::from_raw_parts(text.cast(), length));
    c_int::from(target.result.is_err())
}

/// Writes all figures.
pub fn print(format: Format, output: &mut dyn io::Write) -> io::Result<()> {
    let mut target = Target { output, result: Ok(()) };
    let format = match format {
        Format::Text => sys::HAK_STATS_TEXT,
        Format::Json => sys::HAK_STATS_JSON,
        Format::Prometheus => sys::HAK_STATS_PROMETHEUS,
    };
    // SAFETY: `write` gets the target back, which lives until the call returns.
    let error = unsafe { sys::hak_stats_print(format, Some(write), (&mut target as *mut Target).cast()) };
    target.result?;
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
