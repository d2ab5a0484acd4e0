//! The heap profile: where the memory in use was allocated (feature `profile`).
//!
//! ```
//! let file = std::env::temp_dir().join(format!("heap-{}.pb.gz", std::process::id()));
//! hakmem::profile::start(0)?;
//! let kept: Vec<Vec<u8>> = (0..100).map(|_| vec![1; 100_000]).collect();
//! hakmem::profile::write(&file)?;
//! hakmem::profile::stop();
//! assert!(std::fs::metadata(&file)?.len() > 0 && kept.len() == 100);
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `go tool pprof` and HAKMEM's own `hakmem heap` read the file.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hakmem_sys as sys;

fn outcome(error: i32) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Starts sampling: on average one sample for each `mean` bytes allocated. 0 means `HAKMEM_HEAP_PROFILE_RATE`.
pub fn start(mean: usize) -> io::Result<()> {
    // SAFETY: no condition.
    outcome(unsafe { sys::hak_profile_start(mean) })
}

/// Ends sampling. Samples stay in the profile until their blocks are freed.
pub fn stop() {
    // SAFETY: no condition.
    unsafe { sys::hak_profile_stop() }
}

/// Writes the profile. In the path `%p` is the process id, `%n` the number of the file, and `%%` a percent sign.
pub fn write(path: impl AsRef<Path>) -> io::Result<()> {
    let path = CString::new(path.as_ref().as_os_str().as_bytes())?;
    // SAFETY: the path is a C string.
    outcome(unsafe { sys::hak_profile_write(path.as_ptr()) })
}

/// Writes the profile to an open file, pipe or socket.
pub fn write_fd(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the file is open while it is borrowed.
    outcome(unsafe { sys::hak_profile_write_fd(file.as_raw_fd()) })
}
