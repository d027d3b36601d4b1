//! The exported functions, declared and documented in `include/llmcc.h`.
//!
//! Every function checks its pointers, never unwinds, and leaves the reason of a failure in a thread-local string. Structures start with their size as the
//! caller was compiled with, so that fields may be added: missing ones count as zero, unknown ones must be zero.

mod gen_batch;
mod generation;
mod logprobs;
mod model;
mod sequences;
mod text;
pub mod types;
mod vocab;

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use crate::error::{Error, Result, Status};

pub use gen_batch::*;
pub use generation::*;
pub use logprobs::*;
pub use model::*;
pub use sequences::*;
pub use text::*;
pub use vocab::*;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Message of the last call of this thread that failed; empty before that. Valid until the thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn llmcc_last_error() -> *const c_char {
    // During the thread's exit the string may be gone already.
    LAST_ERROR.try_with(|e| e.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Version of this API: the major version in the upper 16 bits changes when programs must be compiled again.
#[unsafe(no_mangle)]
pub extern "C" fn llmcc_abi_version() -> u32 {
    1 << 16 | 1
}

/// Version of llmcc that built the runtime.
#[unsafe(no_mangle)]
pub extern "C" fn llmcc_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Runs the body of an exported function: turns errors into status codes, and panics (where they unwind) into [`Status::Internal`].
fn guard(body: impl FnOnce() -> Result<()>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Error::new(Status::Internal, "the runtime panicked: a bug in llmcc, please report it")));
    match result {
        Ok(()) => Status::Ok as i32,
        Err(error) => {
            // Interior NULs cannot occur in our own texts, but in quoted ones.
            let message = CString::new(error.message.replace('\0', "\u{fffd}")).unwrap_or_default();
            let _ = LAST_ERROR.try_with(|e| *e.borrow_mut() = message);
            error.status as i32
        }
    }
}

fn null(name: &str) -> Error {
    Error::invalid(format!("{name} is a null pointer"))
}

/// Borrows an object behind a handle.
///
/// # Safety
/// `p` is null or points to a live `T` that stays so for `'a`.
unsafe fn object<'a, T>(p: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { p.as_ref() }.ok_or_else(|| null(name))
}

/// Borrows an array.
///
/// # Safety
/// `p` is null or points to `len` elements that stay valid for `'a`.
unsafe fn array<'a, T>(p: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if p.is_null() {
        return Err(null(name));
    }
    if !p.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Error::invalid(format!("{name} is misaligned or too long ({len} elements)")));
    }
    // SAFETY: the caller's promise; not null, aligned and of possible length.
    Ok(unsafe { slice::from_raw_parts(p, len) })
}

/// Borrows UTF-8 text.
///
/// # Safety
/// As [`array`].
unsafe fn utf8<'a>(p: *const c_char, len: usize, name: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { array(p.cast::<u8>(), len, name)? };
    std::str::from_utf8(bytes).map_err(|e| Error::invalid(format!("{name} is not UTF-8 (byte {} is wrong)", e.valid_up_to())))
}

/// Writes `value` to `p`.
///
/// # Safety
/// `p` is null or writable.
unsafe fn put<T>(p: *mut T, value: T, name: &str) -> Result<()> {
    if p.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    unsafe { p.write(value) };
    Ok(())
}

/// Stores the length of `items` in `needed` and copies them to `out`, which has room for `capacity`. A null `out` only asks for the length.
///
/// # Safety
/// `out` is null or has room for `capacity` elements, `needed` is null or writable.
unsafe fn put_array<T: Copy>(items: &[T], out: *mut T, capacity: usize, needed: *mut usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        if !needed.is_null() {
            needed.write(items.len());
        }
        if out.is_null() {
            return if needed.is_null() { Err(null("the length")) } else { Ok(()) };
        }
        if items.len() > capacity {
            return Err(Error::new(Status::Buffer, format!("the buffer has room for {capacity} elements, {} are needed", items.len())));
        }
        ptr::copy_nonoverlapping(items.as_ptr(), out, items.len());
    }
    Ok(())
}

/// As [`put_array`] for text, followed by a NUL that `needed` does not count.
///
/// # Safety
/// As [`put_array`].
unsafe fn put_text(text: &str, out: *mut c_char, capacity: usize, needed: *mut usize) -> Result<()> {
    // SAFETY: the caller's promise; the NUL is written only after the text and it were found to fit.
    unsafe {
        if !out.is_null() && capacity <= text.len() {
            if !needed.is_null() {
                needed.write(text.len());
            }
            let message = format!("the buffer has {capacity} bytes, {} are needed (with the final NUL)", text.len() + 1);
            return Err(Error::new(Status::Buffer, message));
        }
        put_array(text.as_bytes(), out.cast(), capacity, needed)?;
        if !out.is_null() {
            out.add(text.len()).write(0);
        }
    }
    Ok(())
}

/// A structure of the API that starts with its size in bytes as the caller knows it.
///
/// # Safety
/// The type is `#[repr(C)]`, its first field is the `usize` size, and all its bytes zero are a valid value.
pub unsafe trait Sized0: Copy {
    /// Name in `llmcc.h`.
    const NAME: &str;
}

/// Reads a structure of whatever version the caller has. Null: all zero.
///
/// # Safety
/// `p` is null or points to a structure of as many bytes as its first field says.
unsafe fn read_struct<T: Sized0>(p: *const T) -> Result<T> {
    // SAFETY: all-zero is valid for these types; at most the bytes the caller has are read.
    unsafe {
        let mut value: T = std::mem::zeroed();
        if p.is_null() {
            return Ok(value);
        }
        let size = checked_size(p)?;
        let bytes = slice::from_raw_parts(p.cast::<u8>(), size);
        let (known, unknown) = bytes.split_at(size.min(size_of::<T>()));
        if unknown.iter().any(|&b| b != 0) {
            let message = format!("{} has fields this artifact's runtime does not know; compile the model with a newer llmcc", T::NAME);
            return Err(Error::new(Status::Unsupported, message));
        }
        ptr::copy_nonoverlapping(known.as_ptr(), (&raw mut value).cast::<u8>(), known.len());
        Ok(value)
    }
}

/// Writes the part of `value` that the caller's version of the structure has; its size field stays.
///
/// # Safety
/// As [`read_struct`], and writable.
unsafe fn write_struct<T: Sized0>(p: *mut T, value: &T) -> Result<()> {
    // SAFETY: at most the bytes the caller has are written.
    unsafe {
        if p.is_null() {
            return Err(null(T::NAME));
        }
        let size = checked_size(p)?;
        let skip = size_of::<usize>();
        ptr::write_bytes(p.cast::<u8>().add(skip), 0, size - skip);
        let from = (&raw const *value).cast::<u8>();
        ptr::copy_nonoverlapping(from.add(skip), p.cast::<u8>().add(skip), size.min(size_of::<T>()) - skip);
    }
    Ok(())
}

unsafe fn checked_size<T: Sized0>(p: *const T) -> Result<usize> {
    if !p.cast::<usize>().is_aligned() {
        return Err(Error::invalid(format!("the pointer to {} is misaligned", T::NAME)));
    }
    // SAFETY: the first field is the size.
    let size = unsafe { p.cast::<usize>().read() };
    if (size_of::<usize>()..=4096).contains(&size) {
        return Ok(size);
    }
    Err(Error::invalid(format!("{}.size is {size}; set it to sizeof({})", T::NAME, T::NAME)))
}
