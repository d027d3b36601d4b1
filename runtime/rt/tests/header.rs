//! `include/llmcc.h` and the exported functions agree.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use llmcc_rt::capi::types::*;

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

/// Static assertions about one structure.
macro_rules! layout {
    ($out:ident, $name:ident: $($field:ident)*) => {
        writeln!($out, "_Static_assert(sizeof({0}) == {1}, \"{0}\");", stringify!($name), size_of::<$name>()).unwrap();
        $(writeln!($out, "_Static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");", stringify!($name), stringify!($field), offset_of!($name, $field)).unwrap();)*
        let fields = [$(stringify!($field)),*];
        let declared = declared_fields(stringify!($name));
        assert_eq!(declared, fields, "fields of {}", stringify!($name));
    };
}

/// Field names of a structure in the header, in order.
fn declared_fields(name: &str) -> Vec<String> {
    let header = without_comments(&std::fs::read_to_string(include().join("llmcc.h")).unwrap());
    let start = header.find(&format!("typedef struct {name} {{")).unwrap();
    let body = &header[header[start..].find('{').unwrap() + start + 1..];
    let body = &body[..body.find('}').unwrap()];
    let field = |line: &str| {
        let line = line.split('[').next().unwrap();
        line.rsplit(|c: char| !c.is_alphanumeric() && c != '_').find(|w| !w.is_empty()).map(str::to_owned)
    };
    body.split(';').filter_map(field).collect()
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        out += &rest[..start];
        rest = rest[start..].find("*/").map_or("", |end| &rest[start + end + 2..]);
    }
    out + rest
}

#[test]
fn structures_have_the_layout_of_the_header() {
    let mut c = String::from("#include <stddef.h>\n#include \"llmcc.h\"\n");
    layout!(c, llmcc_options: size threads flags max_tokens max_batch_tokens);
    layout!(c, llmcc_model_info: size vocab hidden layers max_context weights_bytes code_bytes kv_bytes_per_token max_tokens
        max_batch_tokens activation_bytes threads isa bos_token flags columns output entries embed_columns
        image_token reserved);
    layout!(c, llmcc_entry_info: size output pool columns flags types given context axes);
    layout!(c, llmcc_audio_info: size samples rows columns rate reserved);
    layout!(c, llmcc_batch: size n_tokens tokens seqs n_out out_rows hidden hidden_out positions);
    layout!(c, llmcc_embed_rows: size n_rows lengths tokens flags pool types);
    layout!(c, llmcc_tap_info: size columns n_weights experts call);
    layout!(c, llmcc_moments: tap count squares min max products);
    layout!(c, llmcc_pair: first first_len second second_len);
    layout!(c, llmcc_logit_bias: token value);
    layout!(c, llmcc_sampling: temperature top_k top_p min_p repetition_penalty repetition_window seed bias n_bias reserved);
    layout!(c, llmcc_gen_params: size max_tokens sampling stop n_stop stop_tokens n_stop_tokens flags
        top_logprobs adapter reserved reserved_1_4 guesses most_guesses guess guess_user
        image_rows n_image_rows image_grids
        n_image_grids min_tokens presence_penalty frequency_penalty bad_words bad_lengths n_bad
        grammar grammar_len grammar_language reserved_1_9 expected n_expected);
    layout!(c, llmcc_piece: size text text_len token finish logprob top_tokens top_logprobs n_top);
    layout!(c, llmcc_gen_stats_t: size prompt_tokens reused_tokens generated_tokens prefill_ns decode_ns finish reserved
        guessed accepted guess_steps);
    layout!(c, llmcc_engine_options: size max_running flags max_queued target_ns prefix_bytes cache_dir
        cache_dir_len cache_dir_bytes);
    layout!(c, llmcc_request: size text len tokens n_tokens params priority reserved timeout_ns salt);
    layout!(c, llmcc_event: size request text text_len token finish logprob top_tokens top_logprobs n_top ended status
        message prompt_tokens reused_tokens generated_tokens waited_ns first_token_ns total_ns);
    let constants = [
        ("LLMCC_OPEN_PROFILE", LLMCC_OPEN_PROFILE),
        ("LLMCC_ENGINE_NO_PREFIXES", LLMCC_ENGINE_NO_PREFIXES),
        ("LLMCC_OPEN_PIN", LLMCC_OPEN_PIN),
        ("LLMCC_OPEN_PORTABLE", LLMCC_OPEN_PORTABLE),
        ("LLMCC_HAS_TOKENIZER", LLMCC_HAS_TOKENIZER),
        ("LLMCC_HAS_CHAT_TEMPLATE", LLMCC_HAS_CHAT_TEMPLATE),
        ("LLMCC_IS_NORMALIZED", LLMCC_IS_NORMALIZED),
        ("LLMCC_IS_WHOLE", LLMCC_IS_WHOLE),
        ("LLMCC_HAS_TYPES", LLMCC_HAS_TYPES),
        ("LLMCC_NEEDS_HIDDEN", LLMCC_NEEDS_HIDDEN),
        ("LLMCC_HAS_HIDDEN", LLMCC_HAS_HIDDEN),
        ("LLMCC_NEEDS_SOURCE", LLMCC_NEEDS_SOURCE),
        ("LLMCC_HEARS", LLMCC_HEARS),
        ("LLMCC_PAIR_TRUNCATE", LLMCC_PAIR_TRUNCATE),
        ("LLMCC_OUTPUT_LOGITS", LLMCC_OUTPUT_LOGITS),
        ("LLMCC_OUTPUT_EMBEDDING", LLMCC_OUTPUT_EMBEDDING),
        ("LLMCC_OUTPUT_SCORES", LLMCC_OUTPUT_SCORES),
        ("LLMCC_EMBED_NORMALIZE", LLMCC_EMBED_NORMALIZE),
        ("LLMCC_EMBED_RAW", LLMCC_EMBED_RAW),
        ("LLMCC_GEN_IGNORE_EOS", LLMCC_GEN_IGNORE_EOS),
        ("LLMCC_GEN_NO_TEXT", LLMCC_GEN_NO_TEXT),
        ("LLMCC_GEN_SHOW_SPECIAL", LLMCC_GEN_SHOW_SPECIAL),
        ("LLMCC_GEN_RAW_PROMPT", LLMCC_GEN_RAW_PROMPT),
        ("LLMCC_GEN_LOGPROBS", LLMCC_GEN_LOGPROBS),
        ("LLMCC_GRAMMAR_JSON_SCHEMA", LLMCC_GRAMMAR_JSON_SCHEMA),
        ("LLMCC_GRAMMAR_REGEX", LLMCC_GRAMMAR_REGEX),
        ("LLMCC_GRAMMAR_LARK", LLMCC_GRAMMAR_LARK),
        ("LLMCC_GRAMMAR_CHOICES", LLMCC_GRAMMAR_CHOICES),
        ("LLMCC_GUESS_OWN", LLMCC_GUESS_OWN),
        ("LLMCC_GUESS_NONE", LLMCC_GUESS_NONE),
        ("LLMCC_GUESS_HEADS", LLMCC_GUESS_HEADS),
        ("LLMCC_GUESS_LOOKUP", LLMCC_GUESS_LOOKUP),
        ("LLMCC_GUESS_CALLER", LLMCC_GUESS_CALLER),
        ("LLMCC_GUESS_CORPUS", LLMCC_GUESS_CORPUS),
        ("LLMCC_GUESS_JACOBI", LLMCC_GUESS_JACOBI),
        ("LLMCC_GUESS_LOOKAHEAD", LLMCC_GUESS_LOOKAHEAD),
        ("LLMCC_TOKEN_SPECIAL", LLMCC_TOKEN_SPECIAL),
        ("LLMCC_TOKEN_BYTE", LLMCC_TOKEN_BYTE),
        ("LLMCC_TOKEN_ENDS", LLMCC_TOKEN_ENDS),
        ("LLMCC_TOKEN_UNUSED", LLMCC_TOKEN_UNUSED),
        ("LLMCC_AXES", LLMCC_AXES),
        ("LLMCC_ADD_SPECIAL", LLMCC_ADD_SPECIAL),
        ("LLMCC_SHOW_SPECIAL", LLMCC_SHOW_SPECIAL),
        ("LLMCC_ABI_VERSION", llmcc_rt::capi::llmcc_abi_version()),
        ("LLMCC_E_BUFFER", llmcc_rt::Status::Buffer as u32),
        ("LLMCC_E_CACHE_FULL", llmcc_rt::Status::CacheFull as u32),
        ("LLMCC_E_INTERNAL", llmcc_rt::Status::Internal as u32),
        ("LLMCC_E_INTERRUPTED", llmcc_rt::Status::Interrupted as u32),
        ("LLMCC_E_BUSY", llmcc_rt::Status::Busy as u32),
        ("LLMCC_E_DEADLINE", llmcc_rt::Status::Deadline as u32),
        ("LLMCC_FINISH_CONTEXT", llmcc_rt::generate::Finish::Context as u32),
    ];
    for (name, value) in constants {
        writeln!(c, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    for (compiler, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++11")] {
        let c = if language == "c" { c.clone() } else { c.replace("_Static_assert", "static_assert") };
        check_with(compiler, language, standard, &c);
    }
    check_with("cc", "c", "c99", "#include \"llmcc.h\"\nint main(void) { return llmcc_open(NULL, NULL); }\n");
}

fn check_with(compiler: &str, language: &str, standard: &str, source: &str) {
    let path = std::env::temp_dir().join(format!("llmcc-header-{}-{standard}.src", std::process::id()));
    std::fs::write(&path, source).unwrap();
    let standard = format!("-std={standard}");
    let flags = [&standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language];
    let done = Command::new(compiler).args(flags).arg("-I").arg(include()).arg(&path).output();
    let removed = std::fs::remove_file(&path);
    match done {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => eprintln!("skipped: cannot run {compiler} ({error})"),
    }
    removed.unwrap();
}

#[test]
fn every_exported_function_is_declared() {
    let header = without_comments(&std::fs::read_to_string(include().join("llmcc.h")).unwrap());
    let mut declared = BTreeSet::new();
    for (at, _) in header.match_indices("llmcc_") {
        let name: String = header[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if header[at + name.len()..].starts_with('(') {
            declared.insert(name);
        }
    }
    let mut exported = BTreeSet::new();
    for file in [
        "mod.rs",
        "adapters.rs",
        "audio.rs",
        "image.rs",
        "embed.rs",
        "model.rs",
        "sequences.rs",
        "text.rs",
        "generation.rs",
        "gen_batch.rs",
        "logprobs.rs",
        "vocab.rs",
        "pairs.rs",
        "serve.rs",
        "drafter.rs",
        "corpus.rs",
        "compress.rs",
        "tree.rs",
        "tap.rs",
    ] {
        let source =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/capi").join(file)).unwrap();
        for line in source.lines().filter(|l| l.contains("extern \"C\" fn llmcc_")) {
            let name = line.split("fn ").nth(1).unwrap();
            exported.insert(name[..name.find('(').unwrap()].to_owned());
        }
    }
    assert!(exported.len() > 20);
    assert_eq!(declared, exported);
}
