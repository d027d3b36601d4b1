//! Engines.

use super::*;

/// Engines, and requests to them.
pub fn about_engines<'a>() -> Vec<Row<'a>> {
    let event = || Box::leak(Box::new(llmcc_event::default()));
    vec![
        row!(llmcc_engine_open, Invalid, "model is a null", |_w, o| (null(), null(), (&raw mut o.generation).cast())),
        row!(llmcc_engine_open, Invalid, "closed", |w, o| (w.closed, null(), (&raw mut o.generation).cast())),
        row!(llmcc_engine_open, Invalid, "out is a null", |w, _o| (w.model.0, null(), null_mut())),
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
