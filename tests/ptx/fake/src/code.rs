//! `CUresult`.

use std::ffi::{CStr, c_int};

/// Result of a driver call, as in `cuda.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub c_int);

macro_rules! codes {
    ($($name:ident = $value:literal $symbol:literal $text:literal,)*) => {
        #[allow(missing_docs, reason = "named after the driver's own")]
        impl Code {
            $(pub const $name: Code = Code($value);)*

            /// Name and description, for the codes that occur here.
            pub(crate) fn texts(self) -> Option<(&'static CStr, &'static CStr)> {
                match self.0 {
                    $($value => Some(($symbol, $text)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0 c"CUDA_SUCCESS" c"no error",
    INVALID_VALUE = 1 c"CUDA_ERROR_INVALID_VALUE" c"invalid argument",
    OUT_OF_MEMORY = 2 c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory",
    NOT_INITIALIZED = 3 c"CUDA_ERROR_NOT_INITIALIZED" c"initialization error",
    INVALID_DEVICE = 101 c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal",
    INVALID_CONTEXT = 201 c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context",
    NO_BINARY_FOR_GPU = 209 c"CUDA_ERROR_NO_BINARY_FOR_GPU" c"no kernel image is available for execution on the device",
    INVALID_PTX = 218 c"CUDA_ERROR_INVALID_PTX" c"a PTX JIT compilation failed",
    INVALID_HANDLE = 400 c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle",
    NOT_FOUND = 500 c"CUDA_ERROR_NOT_FOUND" c"named symbol not found",
    NOT_READY = 600 c"CUDA_ERROR_NOT_READY" c"device not ready",
    ILLEGAL_ADDRESS = 700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"an illegal memory access was encountered",
    LAUNCH_FAILED = 719 c"CUDA_ERROR_LAUNCH_FAILED" c"unspecified launch failure",
    CAPTURE_UNSUPPORTED = 900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"operation not permitted when stream is capturing",
    CAPTURE_INVALIDATED = 901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"operation failed due to a previous error during capture",
    UNKNOWN = 999 c"CUDA_ERROR_UNKNOWN" c"unknown error",
}
