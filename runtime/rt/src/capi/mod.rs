//! The exported functions, declared and documented in `include/llmcc.h`.
//!
//! Every function checks all its arguments before it does anything, so that a failed call changes
//! nothing; it never unwinds, and leaves the reason of a failure in thread-local bytes. Structures
//! start with their size as the caller was compiled with, so that fields may be added: missing ones
//! count as zero, unknown ones must be zero.

mod adapters;
mod audio;
mod compress;
mod corpus;
mod drafter;
mod embed;
mod gen_batch;
mod generation;
pub mod handles;
mod image;
mod logprobs;
mod model;
mod pairs;
mod sequences;
mod serve;
mod tap;
mod text;
mod tree;
pub mod types;
mod vocab;

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use crate::error::{Error, Result, Status};
use crate::reserve::{Call, need};
use llmcc_abi::capi::LLMCC_ABI_VERSION;

pub use adapters::*;
pub use audio::*;
pub use compress::*;
pub use corpus::*;
pub use drafter::*;
pub use embed::*;
pub use gen_batch::*;
pub use generation::*;
pub use image::*;
pub use logprobs::*;
pub use model::*;
pub use pairs::*;
pub use sequences::*;
pub use serve::*;
pub use tap::*;
pub use text::*;
pub use tree::*;
pub use vocab::*;

/// Bytes kept of a message, its final NUL included.
const MESSAGE: usize = 2048;

thread_local! {
    // Plain bytes, which need no destructor at the thread's end: see `crate::unload`.
    static LAST_ERROR: UnsafeCell<[u8; MESSAGE]> = const { UnsafeCell::new([0; MESSAGE]) };
}

/// Message of the last call of this thread that failed; empty before that. Valid until the thread's
/// next failure.
#[unsafe(no_mangle)]
pub extern "C" fn llmcc_last_error() -> *const c_char {
    LAST_ERROR.with(|bytes| bytes.get().cast())
}

/// Keeps a message for [`llmcc_last_error`]. The end of a very long one is cut off.
fn set_last_error(message: &str) {
    const CUT: &str = "...";
    let cut = message.len() >= MESSAGE;
    let kept = if cut { &message[..message.floor_char_boundary(MESSAGE - 1 - CUT.len())] } else { message };
    LAST_ERROR.with(|bytes| {
        // SAFETY: only this thread has the address, and no reference to the bytes is alive.
        let bytes = unsafe { &mut *bytes.get() };
        // Interior NULs cannot occur in our own texts, but in quoted ones.
        let text = kept.bytes().chain(CUT.bytes().filter(|_| cut)).map(|b| if b == 0 { b'?' } else { b });
        bytes.iter_mut().zip(text.chain([0])).for_each(|(to, from)| *to = from);
    });
}

/// [`LLMCC_ABI_VERSION`].
#[unsafe(no_mangle)]
pub extern "C" fn llmcc_abi_version() -> u32 {
    LLMCC_ABI_VERSION
}

/// Version of llmcc that built the runtime.
#[unsafe(no_mangle)]
pub extern "C" fn llmcc_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Runs the body of an exported function: turns errors into status codes, and panics (where they
/// unwind) into [`Status::Internal`]. Puts memory by before, so that the body finds some.
fn guard(body: impl FnOnce() -> Result<()>) -> i32 {
    let Some(_call) = Call::begin() else {
        set_last_error("out of memory: the system refuses the least memory of a call; free memory and call again");
        return Status::System as i32;
    };
    guard_freeing(body)
}

/// The same for functions that only free, and need no memory for that.
fn guard_freeing(body: impl FnOnce() -> Result<()>) -> i32 {
    let Some(_inside) = crate::unload::enter() else {
        set_last_error("the process is ending");
        return Status::System as i32;
    };
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Error::new(Status::Internal, "the runtime panicked: a bug in llmcc, please report it"))
    });
    match result {
        Ok(()) => Status::Ok as i32,
        Err(error) => {
            set_last_error(&error.message);
            error.status as i32
        }
    }
}

fn null(name: &str) -> Error {
    Error::invalid(format!("{name} is a null pointer"))
}

/// A pointer through which a result is stored, checked before the work for it is done.
struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `p` is null or writable.
    unsafe fn new(p: *mut T, name: &str) -> Result<Out<T>> {
        if p.is_null() {
            return Err(null(name));
        }
        if p.is_aligned() { Ok(Out(p)) } else { Err(Error::invalid(format!("{name} is misaligned"))) }
    }

    fn set(self, value: T) {
        // SAFETY: the promise given to `new`; not null and aligned.
        unsafe { self.0.write(value) }
    }
}

/// A structure of the API that a result is stored in, checked before the work for it is done.
struct OutStruct<T>(*mut T);

impl<T: Sized0> OutStruct<T> {
    /// # Safety
    /// `p` is null or points to a writable structure of as many bytes as its first field says.
    unsafe fn new(p: *mut T) -> Result<OutStruct<T>> {
        if p.is_null() {
            return Err(null(T::NAME));
        }
        // SAFETY: the caller's promise.
        unsafe { checked_size(p) }.map(|_| OutStruct(p))
    }

    fn set(self, value: &T) -> Result<()> {
        // SAFETY: the promise given to `new`.
        unsafe { write_struct(self.0, value) }
    }
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

/// Borrows an array of the caller's to write to.
///
/// # Safety
/// As [`array`]; nobody else uses it meanwhile.
unsafe fn array_mut<'a, T>(p: *mut T, len: usize, name: &str) -> Result<&'a mut [T]> {
    // SAFETY: the caller's promise.
    unsafe { array(p.cast_const(), len, name)? };
    // SAFETY: the caller's promise; not null, aligned and of possible length, unless it is empty.
    Ok(if len == 0 { &mut [] } else { unsafe { slice::from_raw_parts_mut(p, len) } })
}

/// Borrows UTF-8 text.
///
/// # Safety
/// As [`array`].
unsafe fn utf8<'a>(p: *const c_char, len: usize, name: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { array(p.cast::<u8>(), len, name)? };
    std::str::from_utf8(bytes)
        .map_err(|e| Error::invalid(format!("{name} is not UTF-8 (byte {} is wrong)", e.valid_up_to())))
}

/// A copy of a text, for a thread that may outlive the call.
fn owned(text: &str) -> Result<String> {
    need(text.len())?;
    Ok(text.to_owned())
}

/// The part of [`put_array`] that stores a length.
///
/// # Safety
/// `needed` is null or writable.
unsafe fn put_length<T>(length: usize, out: *const T, needed: *mut usize) -> Result<()> {
    if !out.is_aligned() || !needed.is_aligned() {
        return Err(Error::invalid("the buffer, or the pointer to its length, is misaligned"));
    }
    if !needed.is_null() {
        // SAFETY: the caller's promise.
        unsafe { needed.write(length) };
    } else if out.is_null() {
        return Err(null("the buffer, and so is the pointer to its length"));
    }
    Ok(())
}

/// Stores the length of `items` in `needed` and copies them to `out`, which has room for
/// `capacity`. A null `out` only asks for the length.
///
/// # Safety
/// `out` is null or has room for `capacity` elements, `needed` is null or writable.
unsafe fn put_array<T: Copy>(items: &[T], out: *mut T, capacity: usize, needed: *mut usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        put_length(items.len(), out, needed)?;
        if out.is_null() {
            return Ok(());
        }
        if items.len() > capacity {
            return put_room(items.len(), capacity, out, needed);
        }
        ptr::copy_nonoverlapping(items.as_ptr(), out, items.len());
    }
    Ok(())
}

/// As [`put_array`] for `len` elements that do not fit, or are not wanted: `out` is null or too small.
///
/// # Safety
/// As [`put_array`].
unsafe fn put_room<T>(len: usize, capacity: usize, out: *mut T, needed: *mut usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { put_length(len, out, needed)? };
    if out.is_null() {
        return Ok(());
    }
    let message = format!("the buffer has room for {capacity} elements, {len} are needed");
    Err(Error::new(Status::Buffer, message))
}

/// As [`put_array`] for text, followed by a NUL that `needed` does not count.
///
/// # Safety
/// As [`put_array`].
unsafe fn put_text(text: &str, out: *mut c_char, capacity: usize, needed: *mut usize) -> Result<()> {
    // SAFETY: the caller's promise; the NUL is written only after the text and it were found to
    // fit.
    unsafe {
        if !out.is_null() && capacity <= text.len() {
            if !needed.is_null() && needed.is_aligned() {
                needed.write(text.len());
            }
            let message =
                format!("the buffer has {capacity} bytes, {} are needed (with the final NUL)", text.len() + 1);
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
/// The type is `#[repr(C)]`, its first field is the `usize` size, and all its bytes zero are a
/// valid value.
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
            let message = format!(
                "{} has fields this artifact's runtime does not know; compile the model with a newer llmcc",
                T::NAME
            );
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn messages_are_kept_per_thread_and_cut_between_characters() {
        let last = || {
            // SAFETY: never null, and NUL-terminated.
            unsafe { CStr::from_ptr(llmcc_last_error()) }.to_str().unwrap().to_owned()
        };
        set_last_error("a\0b");
        assert_eq!(last(), "a?b");
        let long = format!("x{}", "é".repeat(MESSAGE));
        set_last_error(&long);
        let kept = last();
        assert!(
            kept.len() >= MESSAGE - 6 && kept.len() < MESSAGE && long.starts_with(kept.strip_suffix("...").unwrap())
        );
        set_last_error("short");
        assert_eq!((last().as_str(), std::thread::spawn(last).join().unwrap().as_str()), ("short", ""));
    }
}
