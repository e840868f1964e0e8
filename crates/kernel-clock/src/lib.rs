//! One question to the kernel: does somebody keep this machine's clock right?
//!
//! The agent asks before it believes a clock that leapt (invariant 16). This crate exists for the one unsafe
//! call in evenkeel and must never grow beyond it; it changes nothing about the clock.

use std::io;
use std::mem::MaybeUninit;

/// The kernel lets the possible error of the clock grow while nobody corrects it, and gives it up at this.
/// Chrony, timesyncd and ntpd keep it well below; a machine that has just started, or whose clock was set
/// by hand, is at it.
const ERROR_OF_A_FREE_CLOCK_US: libc::c_long = 16_000_000;

/// Whether the clock is synchronised.
///
/// # Errors
/// When the kernel does not answer, as under a filter of system calls.
pub fn is_synchronised() -> io::Result<bool> {
    let mut clock = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros is a valid `timex` (integers only) whose `modes` asks to change nothing; the kernel
    // writes within the structure it is given.
    #[expect(unsafe_code, reason = "the only way to ask; see the top of this file")]
    let (answer, clock) = unsafe { (libc::adjtimex(clock.as_mut_ptr()), clock.assume_init()) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(clock.maxerror < ERROR_OF_A_FREE_CLOCK_US)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers_and_gives_the_same_answer_again() {
        let first = super::is_synchronised().expect("reading the clock needs no privilege");
        assert_eq!(super::is_synchronised().expect("it answered before"), first);
    }
}
