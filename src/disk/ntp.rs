//! Whether something keeps the wall clock right: asked of the kernel, and of systemd-timesyncd's mark.

use std::mem::MaybeUninit;
use std::path::Path;

/// Left by systemd-timesyncd once the clock is right.
const MARK: &str = "/run/systemd/timesync/synchronized";

/// Whether the wall clock is synchronised; true where that cannot be told (a sandbox that forbids the question).
///
/// Time daemons tell the kernel (`adjtimex(2)`), chrony only with `rtcsync`, which is its usual configuration. The
/// kernel forgets it when the clock is set by hand, or when no daemon has confirmed it for hours.
pub fn synchronised() -> bool {
    let mark = Path::new(MARK);
    match kernel_state() {
        Some(libc::TIME_ERROR) => mark.exists(),
        Some(_) => true,
        None => mark.exists() || !mark.parent().is_some_and(Path::is_dir),
    }
}

/// The kernel's clock state; `None`: the system call is not allowed.
#[expect(unsafe_code, reason = "no crate at hand binds adjtimex")]
fn kernel_state() -> Option<i32> {
    let mut request = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: `timex` is made of integers, for which zeros are values; `modes` = 0 only reads, into this struct.
    let state = unsafe { libc::adjtimex(request.as_mut_ptr()) };
    (state >= 0).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_or_forbids() {
        let known = [libc::TIME_OK, libc::TIME_INS, libc::TIME_DEL, libc::TIME_OOP, libc::TIME_WAIT, libc::TIME_ERROR];
        assert!(kernel_state().is_none_or(|state| known.contains(&state)));
        synchronised();
    }
}
