//! Progress bars on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `total` steps of something.
pub fn steps(total: usize, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// A bar of bytes, whose total is set later.
pub fn bytes(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}
