use core::ffi::{c_uint, c_void, CStr};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::fmt;
use std::io;
use std::{panic, process};

use hakmem_sys as sys;

/// A tenant with a cap in bytes. While a thread is [in it](Scope::enter), all that the thread allocates belongs to it,
/// with [`Hakmem`](crate::Hakmem) as the program's allocator, or with the feature `override`.
///
/// ```
/// #[global_allocator]
/// static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
///
/// let alice = hakmem::Scope::new("alice", 1 << 20)?;
/// let answer: Vec<u8> = {
///     let _inside = alice.enter()?;
///     assert!(Vec::<u8>::new().try_reserve(2 << 20).is_err()); // over the cap
///     vec![7; 100_000]
/// };
/// assert!(alice.stats().live >= 100_000);
/// drop(alice); // answer lives on
/// assert_eq!(answer[99_999], 7);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A scope outlives the scopes below it:
///
/// ```compile_fail,E0505
/// let above = hakmem::Scope::new("above", 0).unwrap();
/// let below = above.below("below", 0).unwrap();
/// drop(above);
/// drop(below);
/// ```
pub struct Scope<'above> {
    inner: NonNull<sys::hak_scope_t>,
    /// A second box, because C hands a thin pointer on. The scope owns it, and `end` takes it back.
    over: Option<NonNull<Over>>,
    above: PhantomData<&'above ()>,
}

type Over = Box<dyn Fn(usize) + Send + Sync>;

/// What C calls. A panic must not go through malloc, so it ends the process, after its message.
unsafe extern "C" fn call_over(_scope: *mut sys::hak_scope_t, live: usize, argument: *mut c_void) {
    // SAFETY: the argument is the scope's `over`, which lives as long as a thread is in the scope, as the caller is.
    let over = unsafe { &*argument.cast::<Over>() };
    if panic::catch_unwind(panic::AssertUnwindSafe(|| over(live))).is_err() {
        process::abort();
    }
}

// SAFETY: scope.h: any thread may call every function of a scope that is not being destroyed.
unsafe impl Send for Scope<'_> {}
unsafe impl Sync for Scope<'_> {}

/// The thread is in a scope as long as this lives.
///
/// It stays in its thread:
///
/// ```compile_fail,E0277
/// let scope = hakmem::Scope::new("a", 0).unwrap();
/// let inside = scope.enter().unwrap();
/// std::thread::scope(|threads| { threads.spawn(|| drop(inside)); });
/// ```
#[must_use]
pub struct Within<'scope> {
    scope: *mut sys::hak_scope_t,
    lives: PhantomData<(&'scope (), *mut ())>,
}

impl Scope<'static> {
    /// An empty scope. `cap`: the most bytes of its blocks and of those of the scopes below it; 0: none.
    ///
    /// The name has 1 to 47 bytes of printable ASCII without `"` and `\`. Fails with the errors of `hak_scope_new`.
    pub fn new(name: &str, cap: usize) -> io::Result<Scope<'static>> {
        make(name, ptr::null_mut(), cap)
    }
}

fn make<'above>(name: &str, parent: *mut sys::hak_scope_t, cap: usize) -> io::Result<Scope<'above>> {
    let name = CString::new(name)?;
    // SAFETY: the name ends with 0, and the parent is NULL or lives as long as the result.
    let inner = unsafe { sys::hak_scope_new(name.as_ptr(), parent, cap) };
    match NonNull::new(inner) {
        Some(inner) => Ok(Scope { inner, over: None, above: PhantomData }),
        None => Err(io::Error::last_os_error()),
    }
}

fn enter<'scope>(scope: *mut sys::hak_scope_t) -> io::Result<Within<'scope>> {
    // SAFETY: the scope is NULL, or lives as long as the result.
    match unsafe { sys::hak_scope_enter(scope) } {
        0 => Ok(Within { scope, lives: PhantomData }),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Leads the thread out of all scopes as long as the result lives: for what outlives a tenant.
pub fn outside_scopes() -> io::Result<Within<'static>> {
    enter(ptr::null_mut())
}

impl Scope<'_> {
    /// An empty scope whose bytes count in this one, too.
    pub fn below(&self, name: &str, cap: usize) -> io::Result<Scope<'_>> {
        make(name, self.inner.as_ptr(), cap)
    }

    /// The thread is in the scope as long as the result lives. Drop the results in the reverse order.
    pub fn enter(&self) -> io::Result<Within<'_>> {
        enter(self.inner.as_ptr())
    }

    /// Calls `over` with the scope's live bytes when it, with the scopes below it, has more than `soft`: once, and
    /// again after it had `soft` or less. A second `on_soft` panics.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// #[global_allocator]
    /// static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
    /// static OVER: AtomicUsize = AtomicUsize::new(0);
    ///
    /// let mut alice = hakmem::Scope::new("alice", 1 << 20)?;
    /// alice.on_soft(500_000, |live| OVER.store(live, Ordering::Relaxed)); // her caches may look at OVER
    /// let inside = alice.enter()?;
    /// let answer = vec![7u8; 600_000];
    /// drop(inside);
    /// assert!(OVER.load(Ordering::Relaxed) >= answer.len());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// A thread in the scope calls it at the end of the allocation that passed `soft`. It runs amid whatever allocates
    /// there, so it must not wait for a lock that such code may hold. It may allocate and free. If it panics, the
    /// process aborts.
    pub fn on_soft(&mut self, soft: usize, over: impl Fn(usize) + Send + Sync + 'static) {
        assert!(self.over.is_none(), "a scope has one soft cap");
        let boxed: Box<Over> = Box::new(Box::new(over));
        let over = NonNull::from(Box::leak(boxed));
        self.over = Some(over);
        // SAFETY: the scope lives, and had no callback, so that no thread reads one while this sets it. A scope that a
        // thread was made to stay in, by mem::forget, keeps the box (`end`).
        unsafe { sys::hak_scope_on_soft(self.inner.as_ptr(), soft, Some(call_over), over.as_ptr().cast()) };
    }

    /// # Safety
    ///
    /// As for `free_all`, if `blocks` is HAK_SCOPE_FREE. The scope is not used again.
    unsafe fn end(&mut self, blocks: c_uint) {
        // It stays open, with its callback, if a `Within` was forgotten.
        if sys::hak_scope_destroy(self.inner.as_ptr(), blocks) != 0 {
            return;
        }
        if let Some(over) = self.over.take() {
            // SAFETY: on_soft leaked this box, and no thread was in the scope any more, so none is in the callback.
            drop(Box::from_raw(over.as_ptr()));
        }
    }

    /// Changes the cap. Blocks stay if they have more.
    pub fn set_cap(&self, cap: usize) {
        // SAFETY: the scope lives.
        unsafe { sys::hak_scope_set_cap(self.inner.as_ptr(), cap) }
    }

    /// The scope's figures.
    pub fn stats(&self) -> sys::hak_scope_stats {
        let mut stats = sys::hak_scope_stats::default();
        // SAFETY: the scope lives, and the struct has that size.
        unsafe { sys::hak_scope_get(self.inner.as_ptr(), &mut stats, core::mem::size_of_val(&stats)) };
        stats
    }

    /// Resident bytes of its slabs and mappings, and of those of the scopes below. Asks the kernel about each slab.
    pub fn resident(&self) -> usize {
        // SAFETY: the scope lives.
        unsafe { sys::hak_scope_resident(self.inner.as_ptr()) }
    }

    /// Whether `block` is in this scope. It must be a live block of HAKMEM.
    pub fn contains<T>(&self, block: *const T) -> bool {
        // SAFETY: HAKMEM checks the address before it reads anything there.
        unsafe { sys::hak_scope_of(block.cast()) == self.inner.as_ptr() }
    }

    /// Frees every block of the scope at once, without any `drop`, and ends the scope.
    ///
    /// # Safety
    ///
    /// Nothing uses a block of the scope any more, not even to free it.
    pub unsafe fn free_all(self) {
        core::mem::ManuallyDrop::new(self).end(sys::HAK_SCOPE_FREE);
    }
}

/// The blocks live on until they are freed.
impl Drop for Scope<'_> {
    fn drop(&mut self) {
        // SAFETY: no borrow of the scope is left, and its blocks live on.
        unsafe { self.end(sys::HAK_SCOPE_KEEP) };
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        // SAFETY: the name ends with 0.
        let name = unsafe { CStr::from_ptr(stats.name.as_ptr()) };
        f.debug_struct("Scope").field("name", &name).field("live", &stats.live).finish_non_exhaustive()
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread entered the scope.
        unsafe { sys::hak_scope_leave(self.scope) }
    }
}

impl fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").finish_non_exhaustive()
    }
}
