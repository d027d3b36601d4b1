//! Whether Android's C library has what the runtime asks for.
//!
//! Artifacts are built with glibc. Another build of the runtime, for Android, asks for the same functions, so the list
//! is checked on the build that there is. Names and levels come from `libc.map.txt`, `libm.map.txt` and
//! `libdl.map.txt` of bionic.

use crate::Failure;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;

/// Functions and variables that bionic has by the same name, at API level 23 or earlier.
const SAME: &str = "\
__cxa_finalize __cxa_thread_atexit_impl __register_atfork __stack_chk_fail __stack_chk_guard abort calloc \
clock_gettime clock_nanosleep close closedir dirfd dl_iterate_phdr dladdr dlerror dlopen dlsym eventfd exp free \
fstat64 fstatat64 futimens getauxval getcwd getenv getpid getrlimit gettid localtime_r log lseek64 madvise \
malloc memcmp memcpy memmove memset mkdir mmap mmap64 mprotect munmap open open64 opendir pause poll \
posix_memalign pow pread64 pthread_attr_destroy pthread_attr_getguardsize pthread_attr_getstack \
pthread_attr_init pthread_attr_setstacksize pthread_create pthread_detach pthread_getattr_np pthread_join \
pthread_key_create pthread_key_delete pthread_self pthread_setname_np pthread_setspecific pthread_sigmask read \
readdir64 readlink realloc realpath rename sched_getaffinity sched_setaffinity sched_yield sigaltstack \
sigfillset sin sincos stat64 strftime strlen syscall sysconf time unlink write writev";

/// Names of glibc, and what stands in their place in a build for Android.
const OTHERWISE: [(&str, &str); 4] = [
    ("__errno_location", "__errno"),
    ("__xpg_strerror_r", "strerror_r"),
    // The compiler knows that bionic has no function of this name for 64 bits.
    ("bcmp", "memcmp"),
    // Before API level 29: emulated by the compiler's library.
    ("__tls_get_addr", "__emutls_get_address"),
];

/// Symbols that a shared object asks for and a build for Android could not have. Functions that it can do without (weak
/// symbols) and those that unwind the stack, which the NDK links statically, are left aside.
///
/// # Errors
/// `bytes` are no ELF file.
pub fn beyond(bytes: &[u8]) -> Result<BTreeSet<String>, Failure> {
    let file = object::File::parse(bytes)?;
    let wanted = file.dynamic_symbols().filter(|s| s.is_undefined() && !s.is_weak());
    let names: Result<Vec<&str>, _> = wanted.map(|s| s.name()).collect();
    Ok(names?.into_iter().filter(|name| !name.is_empty() && !is_known(name)).map(str::to_owned).collect())
}

fn is_known(name: &str) -> bool {
    name.starts_with("_Unwind_")
        || SAME.split(' ').any(|same| same == name)
        || OTHERWISE.iter().any(|(glibc, _)| *glibc == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_asks_for_nothing_that_bionic_lacks() {
        for runtime in [llmcc_rt_image::CORE, llmcc_rt_image::FULL, llmcc_rt_image::MEDIA] {
            assert_eq!(beyond(runtime).expect("an ELF file"), BTreeSet::new());
        }
        // Those for the other architecture, which `make test` has built.
        let Some(folder) = std::env::var_os("LLMCC_TEST_RUNTIMES") else { return };
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            if entry.file_name().to_string_lossy().ends_with(".so") {
                let bytes = std::fs::read(entry.path()).expect("a runtime");
                assert_eq!(beyond(&bytes).expect("an ELF file"), BTreeSet::new(), "{}", entry.path().display());
            }
        }
    }

    #[test]
    fn functions_of_glibc_alone_are_unknown() {
        assert!(["__errno_location", "memcpy", "_Unwind_Resume"].into_iter().all(is_known));
        assert!(!["qsort_r", "gnu_get_libc_version", "mem", "memcpy write"].into_iter().any(is_known));
        let own = std::fs::read(std::env::current_exe().expect("a program")).expect("read");
        assert!(!beyond(&own).expect("an ELF file").is_empty(), "a program asks for __libc_start_main");
    }
}
