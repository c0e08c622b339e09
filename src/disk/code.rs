//! The program's code in memory: what the start has read of it, and needs no more, is let go.
//!
//! The system maps code in runs of pages around each place that is run, so a start leaves most of the program resident.
//! Nothing is lost by letting go: a page that is needed comes back from the page cache, or from the file.

use std::ffi::c_void;

/// Lets go of the pages of code that are mapped; from here on only what runs is resident.
pub fn release_code() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for (start, end) in clean_code(&maps) {
        release(start, end);
    }
}

/// Start and end of each mapping of a file's code of which no page differs from the file (a debugger changes some).
fn clean_code(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut code = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if let Some((start, end)) = first.split_once('-') {
            let is_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
            let range = usize::from_str_radix(start, 16).ok().zip(usize::from_str_radix(end, 16).ok());
            code = range.filter(|_| second == "r-xp" && is_file);
        } else if first == "Private_Dirty:" && second == "0" {
            found.extend(code.take());
        }
    }
    found
}

#[expect(unsafe_code, reason = "pages of the address space are given back")]
fn release(start: usize, end: usize) {
    // SAFETY: this is a private mapping of a file that cannot be written through, and none of its pages differs from the
    // file: the next access finds the same bytes again. A failure changes nothing.
    unsafe { libc::madvise(start as *mut c_void, end.saturating_sub(start), libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_code_of_files_is_let_go() {
        let smaps = "\
1000-3000 r-xp 00001000 fe:00 12 /usr/bin/forebay
Rss: 8 kB
Private_Dirty:         0 kB
3000-4000 r--p 00003000 fe:00 12 /usr/bin/forebay
Private_Dirty:         0 kB
5000-6000 r-xp 00000000 fe:00 13 /usr/lib/libc.so.6
Private_Dirty:         4 kB
7000-8000 r-xp 00000000 00:00 0 [vdso]
Private_Dirty:         0 kB
9000-a000 r-xp 00000000 00:00 0
Private_Dirty:         0 kB
";
        assert_eq!(clean_code(smaps), [(0x1000, 0x3000)]);
    }

    #[test]
    fn the_program_goes_on_without_its_pages() {
        let sum = || (0..1000_u64).map(|i| format!("{i}").len()).sum::<usize>();
        let before = sum();
        release_code();
        assert_eq!(sum(), before);
    }
}
