//! Sequences, and their adapters.

use super::*;

/// Sequences, sounds as their sources, and images in their prompts.
pub fn about_sequences<'a>() -> Vec<Row<'a>> {
    let (sounds, images) = (about_sounds(), about_images());
    let all = about_tokens().into_iter().chain(about_saved()).chain(sounds).chain(images);
    all.chain(about_sizes_of_images()).collect()
}

/// Sequences as bytes.
fn about_saved<'a>() -> Vec<Row<'a>> {
    fn room(o: &mut Outs) -> *mut u8 {
        o.text.as_mut_ptr().cast()
    }
    const OTHER: [u8; 300] = [7; 300];
    vec![
        row!(llmcc_seq_save, Invalid, "model is a null", |w, o| (null(), w.seq, room(o), 8, &mut o.needed)),
        row!(llmcc_seq_save, Invalid, "does not exist", |w, o| (w.model.0, w.freed_seq, room(o), 8, &mut o.needed)),
        row!(llmcc_seq_save, Buffer, "room for 8 elements", |w, o| (w.model.0, w.seq, room(o), 8, &mut o.needed)),
        row!(llmcc_seq_load, Invalid, "model is a null", |_w, o| (null(), OTHER.as_ptr(), 300, &mut o.number)),
        row!(llmcc_seq_load, Invalid, "bytes is a null", |w, o| (w.model.0, null(), 300, &mut o.number)),
        row!(llmcc_seq_load, Invalid, "seq is a null", |w, _o| (w.model.0, OTHER.as_ptr(), 300, null_mut())),
        row!(llmcc_seq_load, Artifact, "no saved sequence", |w, o| (w.model.0, OTHER.as_ptr(), 300, &mut o.number)),
    ]
}

fn about_tokens<'a>() -> Vec<Row<'a>> {
    vec![
        row!(llmcc_seq_new, Invalid, "model is a null", |_w, o| (null(), &mut o.number)),
        row!(llmcc_seq_new, Invalid, "seq is a null", |w, _o| (w.model.0, null_mut())),
        row!(llmcc_seq_new, Invalid, "closed", |w, o| (w.closed, &mut o.number)),
        row!(llmcc_seq_free, Invalid, "model is a null", |w, _o| (null(), w.seq)),
        row!(llmcc_seq_free, Invalid, "already freed", |w, _o| (w.model.0, w.freed_seq)),
        row!(llmcc_seq_free, Invalid, "sequence -1 ", |w, _o| (w.model.0, -1)),
        row!(llmcc_seq_truncate, Invalid, "model is a null", |w, _o| (null(), w.seq, 0)),
        row!(llmcc_seq_truncate, Invalid, "does not exist", |w, _o| (w.model.0, w.freed_seq, 0)),
        row!(llmcc_seq_truncate, Invalid, "3 tokens to 4", |w, _o| (w.model.0, w.seq, 4)),
        row!(llmcc_seq_encode, Invalid, "model is a null", |w, _o| (null(), w.seq, [1].as_ptr(), 1)),
        row!(llmcc_seq_encode, Invalid, "tokens is a null", |w, _o| (w.model.0, w.seq, null(), 1)),
        row!(llmcc_seq_encode, Unsupported, "goes on with its prompt", |w, _o| (w.model.0, w.seq, [1].as_ptr(), 1)),
        row!(llmcc_seq_fork, Invalid, "model is a null", |w, o| (null(), w.seq, &mut o.number)),
        row!(llmcc_seq_fork, Invalid, "copy is a null", |w, _o| (w.model.0, w.seq, null_mut())),
        row!(llmcc_seq_fork, Invalid, "does not exist", |w, o| (w.model.0, w.freed_seq, &mut o.number)),
        row!(llmcc_seq_len, Invalid, "model is a null", |w, o| (null(), w.seq, &mut o.len)),
        row!(llmcc_seq_len, Invalid, "len is a null", |w, _o| (w.model.0, w.seq, null_mut())),
        row!(llmcc_seq_len, Invalid, "does not exist", |w, o| (w.model.0, 12345, &mut o.len)),
        row!(llmcc_seq_tokens, Invalid, "model is a null", |w, o| (
            null(),
            w.seq,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_seq_tokens, Invalid, "does not exist", |w, o| (
            w.model.0,
            w.freed_seq,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_seq_tokens, Buffer, "3 are needed", |w, o| (w.model.0, w.seq, o.ids.as_mut_ptr(), 2, &mut o.needed)),
        row!(llmcc_seq_tokens, Invalid, "misaligned", |w, o| (w.model.0, w.seq, odd(o), 1, &mut o.needed)),
    ]
}

fn about_sounds<'a>() -> Vec<Row<'a>> {
    let wav = || [0f32; 4].as_ptr().cast();
    vec![
        row!(llmcc_audio, Invalid, "model is a null", |_w, o| (null(), (&raw mut o.info).cast())),
        row!(llmcc_audio, Invalid, "llmcc_audio_info is a null", |w, _o| (w.model.0, null_mut())),
        row!(llmcc_audio, Unsupported, "does not read sounds", |w, o| (w.model.0, (&raw mut o.info).cast())),
        row!(llmcc_audio_samples, Invalid, "model is a null", |_w, o| (
            null(),
            wav(),
            4,
            8000,
            o.logits.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_audio_samples, Unsupported, "does not read sounds", |w, o| (
            w.model.0,
            wav(),
            4,
            8000,
            o.logits.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_seq_encode_audio, Invalid, "model is a null", |w, _o| (null(), w.seq, [0.0].as_ptr(), 1)),
        row!(llmcc_seq_encode_audio, Invalid, "samples is a null", |w, _o| (w.model.0, w.seq, null(), 1)),
        row!(llmcc_seq_encode_audio, Unsupported, "does not read sounds", |w, _o| (
            w.model.0,
            w.seq,
            [0.0].as_ptr(),
            1
        )),
        row!(llmcc_seq_encode_rows, Invalid, "model is a null", |w, _o| (null(), w.seq, [0.0].as_ptr(), 1)),
        row!(llmcc_seq_encode_rows, Invalid, "rows is a null", |w, _o| (w.model.0, w.seq, null(), 1)),
        row!(llmcc_seq_encode_rows, Unsupported, "reads no rows", |w, _o| (w.model.0, w.seq, [0.0].as_ptr(), 1)),
        row!(llmcc_audio_prompt, Invalid, "model is a null", |w, o| (
            null(),
            w.seq,
            null(),
            0,
            null(),
            0,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_audio_prompt, Unsupported, "does not read sounds", |w, o| (
            w.model.0,
            w.seq,
            c"en".as_ptr(),
            2,
            null(),
            0,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
    ]
}

fn about_images<'a>() -> Vec<Row<'a>> {
    let png = || [0f32; 4].as_ptr().cast();
    vec![
        row!(llmcc_image_rows, Invalid, "model is a null", |_w, o| (
            null(),
            png(),
            4,
            0,
            0,
            o.logits.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_image_rows, Unsupported, "sees no images", |w, o| (
            w.model.0,
            png(),
            4,
            0,
            0,
            o.logits.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_image_prompt, Invalid, "model is a null", |_w, o| (
            null(),
            c"a".as_ptr(),
            1,
            0,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_image_prompt, Invalid, "text is a null", |w, o| (
            w.model.0,
            null(),
            1,
            0,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_image_prompt, Unsupported, "sees no images", |w, o| (
            w.model.0,
            c"a".as_ptr(),
            1,
            0,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
    ]
}

fn about_sizes_of_images<'a>() -> Vec<Row<'a>> {
    let png = || [0f32; 4].as_ptr().cast();
    const GRID: [u32; 2] = [1, 2];
    vec![
        row!(llmcc_image_grid, Invalid, "model is a null", |_w, o| (null(), png(), 4, 0, 0, o.ids.as_mut_ptr().cast())),
        row!(llmcc_image_grid, Invalid, "grid is a null", |w, _o| (w.model.0, png(), 4, 0, 0, null_mut())),
        row!(llmcc_image_grid, Unsupported, "sees no images", |w, o| (
            w.model.0,
            png(),
            4,
            0,
            0,
            o.ids.as_mut_ptr().cast()
        )),
        row!(llmcc_image_prompt_of, Invalid, "text is a null", |w, o| (
            w.model.0,
            null(),
            1,
            GRID.as_ptr(),
            1,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_image_prompt_of, Invalid, "grids of images is a null", |w, o| (
            w.model.0,
            c"a".as_ptr(),
            1,
            null(),
            1,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_image_prompt_of, Unsupported, "sees no images", |w, o| (
            w.model.0,
            c"a".as_ptr(),
            1,
            GRID.as_ptr(),
            1,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
    ]
}

pub fn about_adapters<'a>() -> Vec<Row<'a>> {
    vec![
        row!(llmcc_adapter_load, Invalid, "model is a null", |_w, o| (null(), c"a".as_ptr(), 1, &mut o.number)),
        row!(llmcc_adapter_load, Invalid, "closed", |w, o| (w.closed, c"a".as_ptr(), 1, &mut o.number)),
        row!(llmcc_adapter_load, Invalid, "path is a null", |w, o| (w.model.0, null(), 1, &mut o.number)),
        row!(llmcc_adapter_load, Invalid, "path is not UTF-8", |w, o| (w.model.0, c"\xff".as_ptr(), 1, &mut o.number)),
        row!(llmcc_adapter_load, Invalid, "adapter is a null", |w, _o| (w.model.0, c"a".as_ptr(), 1, null_mut())),
        row!(llmcc_adapter_load, Unsupported, "has no room for adapters", |w, o| (
            w.model.0,
            c"a".as_ptr(),
            1,
            &mut o.number
        )),
        row!(llmcc_adapter_unload, Invalid, "model is a null", |_w, _o| (null(), 1)),
        row!(
            llmcc_adapter_unload,
            Invalid,
            "no adapter 1 is loaded; use a number that llmcc_adapter_load returned",
            |w, _o| (w.model.0, 1)
        ),
        row!(
            llmcc_adapter_unload,
            Invalid,
            "no adapter 0 is loaded; use a number that llmcc_adapter_load returned",
            |w, _o| (w.model.0, 0)
        ),
        row!(llmcc_seq_set_adapter, Invalid, "model is a null", |w, _o| (null(), w.seq, 0)),
        row!(llmcc_seq_set_adapter, Invalid, "does not exist", |w, _o| (w.model.0, w.freed_seq, 0)),
        row!(
            llmcc_seq_set_adapter,
            Invalid,
            "no adapter -1 is loaded; use a number that llmcc_adapter_load returned",
            |w, _o| (w.model.0, w.seq, -1)
        ),
        row!(
            llmcc_gen_new,
            Invalid,
            "no adapter 3 is loaded; use a number that llmcc_adapter_load returned",
            |w, o| (w.model.0, -1, [1].as_ptr(), 1, &llmcc_gen_params { adapter: 3, ..params() }, &mut o.generation)
        ),
        row!(llmcc_gen_new, Invalid, "use llmcc_seq_set_adapter", |w, o| (
            w.model.0,
            w.seq,
            [1].as_ptr(),
            1,
            &llmcc_gen_params { adapter: 3, ..params() },
            &mut o.generation
        )),
    ]
}
