//! Engines.

use super::*;

/// Options with a folder for files.
fn files(path: &'static CStr, flags: u32, cache_dir_bytes: u64) -> *const llmcc_engine_options {
    let (cache_dir, cache_dir_len) = (path.as_ptr(), path.count_bytes());
    let own = llmcc_engine_options { flags, cache_dir, cache_dir_len, cache_dir_bytes, ..Default::default() };
    Box::leak(Box::new(own))
}

/// Engines, and requests to them.
pub fn about_engines<'a>() -> Vec<Row<'a>> {
    let event = || Box::leak(Box::new(llmcc_event::default()));
    vec![
        row!(llmcc_engine_open, Invalid, "model is a null", |_w, o| (null(), null(), (&raw mut o.generation).cast())),
        row!(llmcc_engine_open, Invalid, "closed", |w, o| (w.closed, null(), (&raw mut o.generation).cast())),
        row!(llmcc_engine_open, Invalid, "out is a null", |w, _o| (w.model.0, null(), null_mut())),
        row!(llmcc_engine_open, Unsupported, "no hash covers", |w, o| (
            w.model.0,
            files(c"/tmp/llmcc-none", 0, 0),
            (&raw mut o.generation).cast()
        )),
        row!(llmcc_engine_open, Invalid, "cache_dir is empty", |w, o| (
            w.model.0,
            files(c"", 0, 0),
            (&raw mut o.generation).cast()
        )),
        row!(llmcc_engine_open, Invalid, "give one of them", |w, o| (
            w.model.0,
            files(c"/tmp/llmcc-none", LLMCC_ENGINE_NO_PREFIXES, 0),
            (&raw mut o.generation).cast()
        )),
        row!(llmcc_engine_open, Invalid, "without a cache_dir", |w, o| (
            w.model.0,
            Box::leak(Box::new(llmcc_engine_options { cache_dir_bytes: 1, ..llmcc_engine_options::default() })),
            (&raw mut o.generation).cast()
        )),
        row!(llmcc_engine_submit, Invalid, "engine is a null", |_w, o| (
            null(),
            &llmcc_request::default(),
            (&raw mut o.len).cast()
        )),
        row!(llmcc_engine_submit, Invalid, "not an open handle", |w, o| (
            w.model.0.cast(),
            &llmcc_request::default(),
            (&raw mut o.len).cast()
        )),
        row!(llmcc_engine_submit, Invalid, "request is a null", |w, o| (
            w.model.0.cast(),
            null(),
            (&raw mut o.len).cast()
        )),
        row!(llmcc_engine_submit, Invalid, "id is a null", |w, _o| (
            w.model.0.cast(),
            &llmcc_request::default(),
            null_mut()
        )),
        row!(llmcc_engine_poll, Invalid, "engine is a null", |_w, o| (null(), event(), 1, &mut o.len, 0)),
        row!(llmcc_engine_poll, Invalid, "not an open handle", |w, o| (w.model.0.cast(), event(), 1, &mut o.len, 0)),
        row!(llmcc_engine_poll, Invalid, "n is a null", |w, _o| (w.model.0.cast(), event(), 1, null_mut(), 0)),
        row!(llmcc_engine_cancel, Invalid, "engine is a null", |_w, _o| (null(), 1)),
        row!(llmcc_engine_cancel, Invalid, "not an open handle", |w, _o| (w.model.0.cast(), 1)),
        row!(llmcc_engine_stats, Invalid, "engine is a null", |_w, o| (null(), null_mut(), 0, &mut o.needed)),
        row!(llmcc_engine_fd, Invalid, "engine is a null", |_w, o| (null(), &mut o.number)),
        row!(llmcc_engine_fd, Invalid, "fd is a null", |w, _o| (w.model.0.cast(), null_mut())),
    ]
}
