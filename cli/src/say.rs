//! Output to standard error. A reader that went away, or a full disk, is no reason to end: these
//! stand for the macros of the same name in the standard library, which panic.

/// Writes a line to standard error, if it can be written.
macro_rules! eprintln {
    ($($arg:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stderr(), $($arg)*);
    }};
}

/// Writes to standard error, if it can be written.
macro_rules! eprint {
    ($($arg:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::write!(::std::io::stderr(), $($arg)*);
    }};
}
