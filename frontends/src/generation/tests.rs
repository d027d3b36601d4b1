use super::*;
use crate::fixtures::write_checkpoint;
use crate::testing::{Folder, config, with};

/// The defaults from a file, or with `None` from members of `config.json`, for a model with 16
/// tokens, the last of which ends texts.
fn read(file: Option<&str>, members: Value) -> Result<Found, String> {
    let folder = Folder::new();
    write_checkpoint(&folder.0, &with(config("llama"), members), &[]).unwrap();
    if let Some(text) = file {
        folder.write(FILE, text);
    }
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    found(&ckpt, 16, &[15]).map_err(|e| e.to_string().replace(&*folder.0.to_string_lossy(), "DIR"))
}

fn settings(file: Value) -> Value {
    Value::Object(read(Some(&file.to_string()), json!({})).unwrap().settings)
}

#[test]
fn sampling_is_that_of_transformers() {
    assert_eq!(settings(json!({})), json!({}));
    assert_eq!(settings(json!({ "do_sample": true })), json!({ "temperature": 1.0, "top_k": 50 }));
    assert_eq!(settings(json!({ "do_sample": true, "top_k": 0 })), json!({ "temperature": 1.0 }));
    assert_eq!(settings(json!({ "do_sample": true, "top_k": -1, "top_p": 1 })), json!({ "temperature": 1.0 }));
    let all = json!({ "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.9 });
    let all = with(all, json!({ "repetition_penalty": 1.1 }));
    assert_eq!(settings(with(all.clone(), json!({ "do_sample": true }))), all);
    // Greedy, whatever the temperature; the filters stay for whoever asks for another one.
    assert_eq!(settings(json!({ "do_sample": false, "temperature": 0.6, "top_p": 0.9 })), json!({ "top_p": 0.9 }));
    assert_eq!(settings(json!({ "temperature": 0.6 })), json!({}));
    // Which keeps one token.
    assert_eq!(settings(json!({ "do_sample": true, "top_p": 0.0 })), json!({ "temperature": 1.0, "top_k": 1 }));
    let neutral = json!({ "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0, "max_length": 20 });
    assert_eq!(settings(neutral), json!({}));
    let neutral = json!({ "bad_words_ids": null, "suppress_tokens": [], "no_repeat_ngram_size": 0 });
    assert_eq!(settings(neutral), json!({}));
}

#[test]
fn lengths_and_tokens() {
    let given = json!({ "max_new_tokens": 128, "max_length": 4096, "min_new_tokens": 2, "min_length": 3 });
    let more = |stop: Value| with(given.clone(), json!({ "no_repeat_ngram_size": 4, "stop_strings": stop }));
    assert_eq!(settings(more(json!("###"))), more(json!(["###"])));
    // Tokens that the model does not have are never chosen anyway.
    let one = |name: &str, given: Value| settings(json!({ name: given }))[name].clone();
    assert_eq!(one("suppress_tokens", json!([3, 99, -1])), json!([3]));
    assert_eq!(one("begin_suppress_tokens", json!([4])), json!([4]));
    let words = json!([[5], [6, 7], [15], [15, 1], [99], [99, 1]]);
    assert_eq!(one("bad_words_ids", words), json!([[5], [6, 7], [15, 1]]), "and an end may always come");
    assert_eq!(one("sequence_bias", json!([[[8], -1.5], [[99], 2.0]])), json!([[[8], -1.5]]));
}

#[test]
fn what_is_not_used_is_said() {
    let given = json!({ "num_beams": 4, "penalty_alpha": 0.6, "presence_penalty": 1.5, "forced_eos_token_id": 2 });
    let given = with(given, json!({ "guidance_scale": 1, "constraints": [], "cache_implementation": "static" }));
    let said = read(Some(&given.to_string()), json!({})).unwrap().warnings;
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[0], "generation_config.json: `num_beams` is 4, which is not used: texts are made without it");
}

#[test]
fn values_without_a_meaning_are_errors() {
    for (given, says) in [
        (json!({ "temperature": "hot" }), "`temperature` is \"hot\", not 0 or a positive number"),
        (json!({ "temperature": -1 }), "`temperature` is -1"),
        (json!({ "top_p": 1.5 }), "`top_p` is 1.5, not a number from 0 to 1"),
        (json!({ "top_k": 1.5 }), "`top_k` is 1.5, not 0 or a positive integer"),
        (json!({ "typical_p": 0 }), "`typical_p` is 0"),
        (json!({ "repetition_penalty": 0 }), "`repetition_penalty` is 0"),
        (json!({ "do_sample": "yes" }), "`do_sample` is \"yes\", not true or false"),
        (json!({ "suppress_tokens": "all" }), "`suppress_tokens` is \"all\", not a list of token ids"),
        (json!({ "bad_words_ids": [1, 2] }), "`bad_words_ids` is [1,2], not a list of lists of token ids"),
        (json!({ "stop_strings": [1] }), "`stop_strings` is [1], not a text or a list of texts"),
        (json!({ "sequence_bias": [[1, 2.0]] }), "`sequence_bias` is [[1,2.0]]"),
        (json!([1]), "it is no JSON object"),
    ] {
        let error = read(Some(&given.to_string()), json!({})).unwrap_err();
        assert!(error.starts_with("DIR/generation_config.json: ") && error.contains(says), "{error}");
    }
}

#[test]
fn config_json_stands_in_for_the_file() {
    let members = json!({ "architectures": ["LlamaForCausalLM"], "do_sample": true, "top_p": 0.9, "max_length": 32 });
    let expected = json!({ "temperature": 1.0, "top_k": 50, "top_p": 0.9 });
    assert_eq!(Value::Object(read(None, members.clone()).unwrap().settings), expected);
    assert!(read(Some("{}"), members.clone()).unwrap().settings.is_empty(), "the file wins, whatever it says");
    assert!(read(None, with(members, json!({ "architectures": ["LlamaModel"] }))).unwrap().settings.is_empty());
}
